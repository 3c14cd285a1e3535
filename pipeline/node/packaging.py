"""The archive that a cluster's executors unpack: this project and the packages it depends on.

The packages come from the environment that runs this code, so the cluster gets the tested releases,
and nothing is downloaded. Spark ships the archive by `--archives`, and
`spark.executorEnv.PYTHONPATH` adds it to the executors' path (Spark's documentation, "Python
Package Management"). pyspark and py4j are left out, because the cluster already has them.
`LICENSES.txt` in the archive names each package's licence.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from msgspec import Struct
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from group_coordinator import pipeline
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.extras import PROJECT, install_hint
from group_coordinator.pipeline.node import needed

OWN_PACKAGE = "group_coordinator"
_OF_SPARK = frozenset({"pyspark", "py4j"})
# gzip's fastest level: the archive becomes only a little larger.
_LEVEL = 1
# The end of job.py; before it is the text of `needed`.
_START = """

if __name__ == "__main__":
    found = missing_modules()
    if found is not None:
        sys.exit(f"group-coordinator: {advice('driver', found)}")
    from group_coordinator.pipeline.node.job import main

    sys.exit(main())
"""


class NotInstalled(Failure):
    """A required package is not installed here, or has no list of its files."""


class Packaged(Struct, frozen=True):
    """The result of `write_package`: the archive, the job, and each package as `name release`."""

    archive: Path
    job: Path
    packages: tuple[str, ...]


def write_package(out: Path, progress: Callable[[str], None] = lambda _: None) -> Packaged:
    """Write `group-coordinator.tar.gz` and `job.py` into a folder, and return their contents.

    `progress` is called with a line for each package. An existing archive is replaced when the new
    one is complete. Raises NotInstalled, OSError.
    """
    found = distributions()
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{needed.ARCHIVE_FOLDER}.tar.gz"
    begun = archive.with_suffix(".begun")
    try:
        with tarfile.open(begun, "w:gz", compresslevel=_LEVEL) as tar:
            for number, one in enumerate(found, 1):
                progress(f"{number} of {len(found)}: {one.metadata['Name']} {one.version}")
                for name, file in _files(one):
                    tar.add(file, str(name), recursive=False)
            for name, file in own_files():
                tar.add(file, str(name), recursive=False)
            _add_text(tar, "LICENSES.txt", "".join(map(licence_line, found)))
        begun.replace(archive)
    finally:
        begun.unlink(missing_ok=True)
    job = out / "job.py"
    job.write_text(job_text())
    return Packaged(archive, job, tuple(f"{one.metadata['Name']} {one.version}" for one in found))


def job_text() -> str:
    """Return the script for spark-submit, which starts the job unless the driver lacks a module."""
    return Path(needed.__file__).read_text() + _START


def licence_line(one: Distribution) -> str:
    """Return a package's licence by its metadata: an SPDX expression, a classifier or a text."""
    told = one.metadata
    expressed = told.get_all("License-Expression") or ()
    classified = [
        text.rpartition(" :: ")[2]
        for text in told.get_all("Classifier") or ()
        if text.startswith("License :: ")
    ]
    written = [text.strip().partition("\n")[0] for text in told.get_all("License") or ()]
    licence = ", ".join(expressed or classified or written) or "not stated"
    return f"{told['Name']} {one.version}: {licence}\n"


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def distributions() -> list[Distribution]:
    """Return the project and the packages that a coordinator depends on, sorted by name.

    Raises NotInstalled.
    """
    found: dict[str, Distribution] = {}
    wanted = [PROJECT]
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in found or name in _OF_SPARK:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError as error:
            raise NotInstalled(
                f"{name} is not installed in this environment: {install_hint('coordinator')}"
            ) from error
        found[name] = one
        extra = {"extra": "coordinator" if name == PROJECT else ""}
        for text in one.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(extra):
                wanted.append(requirement.name)
    return [found[name] for name in sorted(found)]


def _files(one: Distribution) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files of a package to import, without scripts, `.pyc` and `.pth` files.

    This project's own files are left out too.
    """
    if one.files is None:
        raise NotInstalled(
            f"{one.metadata['Name']} is installed without a list of its files: install it by pip"
        )
    for file in one.files:
        top = file.parts[0]
        is_own = top == OWN_PACKAGE or top.startswith("__editable__")
        if is_own or ".." in file.parts or file.suffix in (".pyc", ".pth"):
            continue
        path = Path(str(file.locate()))
        if path.is_file():
            yield file, path


def own_files() -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files of this project's package, following links to folders as in a checkout."""
    folder = Path(pipeline.__file__).parents[1]
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for path in (Path(parent, each) for each in sorted(files)):
            yield PurePosixPath(OWN_PACKAGE) / path.relative_to(folder).as_posix(), path
