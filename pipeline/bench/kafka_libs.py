"""Kafka's own jars: its broker and its command line tools, for benches and tests beside them.

The jars are no part of this project. They are fetched only into a folder that the user names, by
the Ivy that comes with Spark, from the repositories that Spark fetches Delta's jars from.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import Failure
from pipeline.host import find_java

VERSION = "4.1.0"
# kafka_2.13 has the broker and the tool that formats its storage, kafka-tools what the scripts in
# Kafka's `bin` start. Each names its dependencies, but for the binding by which they log.
_KAFKA = "org.apache.kafka"
_MODULES = (
    (_KAFKA, "kafka_2.13", VERSION),
    (_KAFKA, "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
_IVY = """\
<ivy-module version="2.0">
  <info organisation="group-coordinator" module="kafka-libs"/>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default"/>'
ADVICE = (
    f"no Kafka {VERSION} beside it: name a folder with its jars by --kafka-libs; "
    "an empty folder is filled"
)


class KafkaMissing(Failure):
    """Kafka's jars, or Java, are missing and cannot be fetched; the message says what was tried."""


def java() -> str:
    """The path of the Java that Spark would start. Raises KafkaMissing."""
    found = find_java()
    if found is None:
        raise KafkaMissing("Kafka needs Java 17 or newer: install a JDK and set JAVA_HOME to it")
    return found


def kafka_libs(folder: Path, say: Callable[[str], None]) -> Path:
    """Return the folder, after Kafka's jars are fetched into it unless they are there.

    Raises KafkaMissing if they cannot be fetched.
    """
    if _has_all(folder):
        return folder
    say(f"fetching Kafka {VERSION} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    ivy = next(_spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise KafkaMissing(f"this PySpark comes without Ivy: put Kafka's jars into {folder}")
    with tempfile.TemporaryDirectory() as made:
        wanted = Path(made) / "ivy.xml"
        dependencies = (_DEPENDENCY.format(*module) for module in _MODULES)
        wanted.write_text(_IVY.format(dependencies="\n".join(dependencies)))
        command = [
            *(java(), "-jar", str(ivy), "-warn", "-cache", str(folder / "ivy")),
            *("-ivy", str(wanted), "-confs", "default"),
            *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not _has_all(folder):
        last = "; ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise KafkaMissing(f"Kafka {VERSION} could not be fetched into {folder}: {last}")
    shutil.rmtree(folder / "ivy")
    return folder


def _has_all(folder: Path) -> bool:
    return all((folder / f"{name}-{version}.jar").is_file() for _, name, version in _MODULES)


def _spark_jars() -> Path:
    """The jars that PySpark comes with; found without loading it, which takes a second."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"
