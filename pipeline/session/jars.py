"""The jars of `spark.jars.packages`, resolved by Ivy once and then passed as files.

At each start of a JVM Spark lets Ivy resolve packages, without locking Ivy's cache. So coordinators
that start at the same time can fail with JAVA_GATEWAY_EXITED ("Downloaded file size (0) doesn't
match expected Content Length"), even with a filled cache. Therefore a file lock lets one start at a
time resolve, and it writes a list of the jars. Later starts need neither Ivy nor the network.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlparse

import msgspec

from group_coordinator.pipeline.session.driver_jvm import runs_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PACKAGES = "spark.jars.packages"
EXCLUDES = "spark.jars.excludes"
IVY_FOLDER = "spark.jars.ivy"
_JARS = "spark.jars"
# The settings that determine the result of Ivy.
_ASKED = (
    PACKAGES,
    EXCLUDES,
    "spark.jars.repositories",
    "spark.jars.ivySettings",
    IVY_FOLDER,
    _JARS,
)
# Spark's own default of `spark.jars.ivy`.
_DEFAULT_FOLDER = ".ivy2.5.2"

Start = Callable[[dict[str, str]], "SparkSession"]


def start_with_jars(wanted: dict[str, str], start: Start) -> SparkSession:
    """Call `start` with these settings; packages are replaced by their jars if those are known.

    A file in Ivy's folder lists the jars of a set of packages. If it or a jar is missing, Ivy
    resolves again; this waits while another process resolves. Raises OSError if Ivy's folder cannot
    be written.
    """
    if runs_jvm():
        # A running JVM resolved its packages at its start, and does not resolve others.
        return start(wanted)
    known = with_known_jars(wanted)
    if known is None:
        found = _found(wanted)
        found.parent.mkdir(parents=True, exist_ok=True)
        with (found.parent / "group-coordinator.lock").open("ab") as lock:
            _await(lock)
            # Another process may have resolved them while this one waited for the lock.
            known = with_known_jars(wanted)
            if known is None:
                log.info(
                    "downloading Spark's packages, once for this machine: %s", wanted[PACKAGES]
                )
                spark = start(wanted)
                _write(found, spark.sparkContext.getConf().get(_JARS) or "")
                return spark
    return start(known)


def with_known_jars(wanted: dict[str, str]) -> dict[str, str] | None:
    """Return the settings with jars instead of packages; None if Ivy has to resolve first."""
    if not wanted.get(PACKAGES):
        return wanted
    jars = _read(_found(wanted))
    if jars is None:
        return None
    named = {key: value for key, value in wanted.items() if key != PACKAGES}
    return {**named, _JARS: ",".join(jars)}


def _found(wanted: dict[str, str]) -> Path:
    folder = Path(wanted.get(IVY_FOLDER) or Path.home() / _DEFAULT_FOLDER)
    asked = msgspec.json.encode([wanted.get(key) for key in _ASKED])
    return folder / f"group-coordinator-{hashlib.sha256(asked).hexdigest()[:16]}.json"


def _await(lock: IO[bytes]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting for another start on this machine, which downloads Spark's packages")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _read(found: Path) -> list[str] | None:
    """Return the listed jars; None if the list or one of the jars is missing."""
    try:
        jars = msgspec.json.decode(found.read_bytes(), type=list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return jars if all(Path(unquote(urlparse(jar).path)).is_file() for jar in jars) else None


def _write(found: Path, jars: str) -> None:
    draft = found.with_name(f"{found.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(jars.split(",")))
    draft.replace(found)
