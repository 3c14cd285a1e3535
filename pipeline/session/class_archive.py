"""The class data sharing (CDS) archive of Spark's classes, which shortens a JVM's start (JEP 350).

Without it, the JVM spends much of its start on loading and verifying Spark's classes. The archive
takes about 170 MB in the user's cache folder. `pipeline.node.archive_maker` creates it once for
each combination of Java, Spark and virtual environment. A JVM rejects an archive of another
combination and starts without it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

from group_coordinator.pipeline.user_folders import cache_folder

SETTING = "spark.group-coordinator.class.archive"
# Options for all JVMs of the user. They can conflict with those of the archive.
VARIABLE = "JDK_JAVA_OPTIONS"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# A JVM that cannot use an archive runs without it. Its log messages about that are disabled.
QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def cached(prefix: str, *of_what: object) -> Path:
    """Return the archive's path in the user's cache folder. The name has a hash of `of_what`."""
    key = hashlib.sha256(repr(of_what).encode()).hexdigest()[:16]
    return cache_folder() / f"{prefix}-{key}.jsa"


def archive_path(java: str) -> Path:
    """Return the archive's path, also if there is no archive yet.

    `java` is the complete output of `java -version`. The file names of one virtual environment have
    the same prefix.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]
    return cached(f"coordinator-{environment}", java, sys.prefix, version("pyspark"))


def may_use(settings: dict[str, str]) -> bool:
    """Return whether a session with these Spark settings may use and create the archive.

    It may not if `SETTING` is false, or if the user has set JVM options that can conflict with it.
    """
    wanted = settings.get(SETTING, "true").lower() == "true"
    chosen = settings.get(DRIVER_OPTIONS, "")
    return wanted and not os.environ.get(VARIABLE) and "Archive" not in chosen


def use(archive: Path) -> str:
    """Return the JVM options that enable an archive."""
    return f'{QUIET} "-XX:SharedArchiveFile={archive}"'
