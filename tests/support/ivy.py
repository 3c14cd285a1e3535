"""Jars that do not belong to this project, fetched by Spark's Ivy."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from group_coordinator.pipeline.errors import Failure

_IVY = """\
<ivy-module version="2.0">
  <info organisation="group-coordinator" module="jars"/>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = (
    '    <dependency org="{0.group}" name="{0.name}" rev="{0.version}" conf="default" '
    'transitive="{1}"/>'
)


class JarsNotFetched(Failure):
    """Error if the jars cannot be fetched; the message names the attempts."""


class Module(NamedTuple):
    """A module by its Maven coordinates; `alone` omits its dependencies."""

    group: str
    name: str
    version: str
    alone: bool = False

    @property
    def jar(self) -> str:
        """The name of its file in the folder."""
        return f"{self.name}-{self.version}.jar"


def fetch_jars(java: str, modules: Iterable[Module], folder: Path) -> None:
    """Fetch modules with their dependencies into a folder, unless it has all of them.

    They come from the repositories that Spark uses for its packages. Raises JarsNotFetched.
    """
    modules = list(modules)
    if _has_all(folder, modules):
        return
    folder.mkdir(parents=True, exist_ok=True)
    ivy = next(spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarsNotFetched("this PySpark comes without Ivy")
    with tempfile.TemporaryDirectory() as made:
        wanted = Path(made) / "ivy.xml"
        lines = (_DEPENDENCY.format(each, str(not each.alone).lower()) for each in modules)
        wanted.write_text(_IVY.format(dependencies="\n".join(lines)))
        command = [
            *(java, "-jar", str(ivy), "-warn", "-cache", str(folder / "ivy")),
            *("-ivy", str(wanted), "-confs", "default"),
            *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not _has_all(folder, modules):
        raise JarsNotFetched("; ".join((done.stdout + done.stderr).strip().splitlines()[-3:]))
    shutil.rmtree(folder / "ivy")


def _has_all(folder: Path, modules: Iterable[Module]) -> bool:
    return all((folder / each.jar).is_file() for each in modules)


def spark_jars() -> Path:
    """Return the folder of PySpark's jars, without loading PySpark, which takes a second."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"
