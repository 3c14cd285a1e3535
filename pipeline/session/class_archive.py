"""The archive of Spark's classes, which spares a JVM most of the work of its start (JEP 350).

A coordinator's JVM spends much of its start on loading and verifying Spark's classes. An archive of
them, some 170 MB in the user's cache folder, is made once (`pipeline.node.archive_maker`) for a
machine's Java, its Spark and the virtual environment that Spark lies in: a JVM refuses an archive
of others, and starts without it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

from group_coordinator.pipeline.user_folders import cache_folder

SETTING = "spark.group-coordinator.class.archive"
# Options of every JVM that the user starts; they may contradict the archive's own.
VARIABLE = "JDK_JAVA_OPTIONS"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# A JVM that cannot use an archive runs without it; what it logs about that is for its makers.
QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def cached(prefix: str, *of_what: object) -> Path:
    """Where in the user's cache folder the archive for these is, or would be."""
    key = hashlib.sha256(repr(of_what).encode()).hexdigest()[:16]
    return cache_folder() / f"{prefix}-{key}.jsa"


def archive_path(java: str) -> Path:
    """Where the archive is, or would be; `java` is all that its `-version` prints.

    The archives of one virtual environment begin with the same name.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]
    return cached(f"coordinator-{environment}", java, sys.prefix, version("pyspark"))


def may_use(settings: dict[str, str]) -> bool:
    """Whether a session with these settings of Spark is to use the archive, and to have one made.

    Not where `SETTING` is false, nor where the user chose options that may contradict it.
    """
    wanted = settings.get(SETTING, "true").lower() == "true"
    chosen = settings.get(DRIVER_OPTIONS, "")
    return wanted and not os.environ.get(VARIABLE) and "Archive" not in chosen


def use(archive: Path) -> str:
    """The options of a JVM that uses an archive."""
    return f'{QUIET} "-XX:SharedArchiveFile={archive}"'
