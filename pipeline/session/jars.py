"""The jars of `spark.jars.packages`: Ivy resolves them once, later starts name the files it found.

Spark has Ivy resolve packages in every JVM that it starts, and Ivy takes no lock on its cache.
Coordinators that start together end with JAVA_GATEWAY_EXITED ("Downloaded file size (0) doesn't
match expected Content Length"): most of them with an empty cache, and some with a filled one,
because Ivy fetches a POM that has a parent anew at every start. So one start at a time resolves,
and it writes down the files; a start that finds them needs neither Ivy nor the network.
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
# Whatever changes what Ivy finds.
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
    """Call `start` with these settings, or with files instead of packages where they are known.

    Which files Ivy found is kept beside its cache, by the packages asked for: without that file, or
    without one of those it names, Ivy resolves again. Waits while another process resolves. Raises
    OSError if Ivy's folder cannot be written.
    """
    if runs_jvm():
        # A JVM that runs already has resolved what it was started with, and resolves no more.
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
                log.info("fetching Spark's packages, once for this machine: %s", wanted[PACKAGES])
                spark = start(wanted)
                _write(found, spark.sparkContext.getConf().get(_JARS) or "")
                return spark
    return start(known)


def with_known_jars(wanted: dict[str, str]) -> dict[str, str] | None:
    """The settings with files instead of packages; None where Ivy has to resolve them first."""
    if not wanted.get(PACKAGES):
        return wanted
    jars = _read(_found(wanted))
    if jars is None:
        return None
    named = {key: value for key, value in wanted.items() if key != PACKAGES}
    return {**named, _JARS: ",".join(jars)}


def _found(wanted: dict[str, str]) -> Path:
    """The file that says what Ivy has found for these settings."""
    folder = Path(wanted.get(IVY_FOLDER) or Path.home() / _DEFAULT_FOLDER)
    asked = msgspec.json.encode([wanted.get(key) for key in _ASKED])
    return folder / f"group-coordinator-{hashlib.sha256(asked).hexdigest()[:16]}.json"


def _await(lock: IO[bytes]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting for another start on this machine, which fetches Spark's packages")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _read(found: Path) -> list[str] | None:
    """Return the jars that were found, if all of them are there."""
    try:
        jars = msgspec.json.decode(found.read_bytes(), type=list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return jars if all(Path(unquote(urlparse(jar).path)).is_file() for jar in jars) else None


def _write(found: Path, jars: str) -> None:
    """Keep the jars of a session that has started with them."""
    draft = found.with_name(f"{found.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(jars.split(",")))
    draft.replace(found)
