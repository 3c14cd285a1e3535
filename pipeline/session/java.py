"""The Java that Spark starts: its executable and version, and its class data sharing (CDS) archive.

The archive saves a JVM the loading and verifying of Spark's classes (JEP 350), much of its start.
It takes about 170 MB in the user's cache folder. `pipeline.node.archive_maker` creates it once for
each combination of Java, Spark and virtual environment. A JVM rejects an archive of another
combination and starts without it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.user_folders import cache_folder

OLDEST_JAVA = 17
ARCHIVE_SETTING = "spark.group-coordinator.class.archive"
# Options for all JVMs of the user. They can conflict with those of the archive.
JAVA_OPTIONS = "JDK_JAVA_OPTIONS"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# A JVM that cannot use an archive runs without it. Its log messages about that are disabled.
QUIET_ARCHIVE = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


class JavaMissing(Failure):
    """Java is missing or too old for Spark; the message says which version to install."""


def find_java() -> str | None:
    """Return the path of the Java executable that Spark starts; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def check_java() -> str:
    """Return the output of `java -version` for the Java that Spark starts.

    Raises JavaMissing if there is no Java, or if it is older than `OLDEST_JAVA`.
    """
    java = find_java()
    advice = f"install a JDK or JRE {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    if java is None or not Path(java).exists():
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA} or newer, and found none: {advice}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = java_version(answer.stderr)
    if found is None:
        raise JavaMissing(f"{java} -version does not print its version: {advice}")
    if found < OLDEST_JAVA:
        raise JavaMissing(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is Java {found}: {advice}"
        )
    return answer.stderr


def java_version(text: str) -> int | None:
    """Parse the major version in the output of `java -version`; 8 for "1.8.0"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _cached(prefix: str, *of_what: object) -> Path:
    """Return a path in the user's cache folder; the name has a hash of `of_what`."""
    key = hashlib.sha256(repr(of_what).encode()).hexdigest()[:16]
    return cache_folder() / f"{prefix}-{key}.jsa"


def archive_path(java: str) -> Path:
    """Return the path of the CDS archive, also if there is no archive yet.

    `java` is the complete output of `java -version`. The file names of one virtual environment have
    the same prefix.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]
    return _cached(f"coordinator-{environment}", java, sys.prefix, version("pyspark"))


def may_use_archive(settings: dict[str, str]) -> bool:
    """Return whether a session with these Spark settings may use and create the CDS archive.

    It may not if `ARCHIVE_SETTING` is false, or if the user has set JVM options that can conflict.
    """
    wanted = settings.get(ARCHIVE_SETTING, "true").lower() == "true"
    chosen = settings.get(DRIVER_OPTIONS, "")
    return wanted and not os.environ.get(JAVA_OPTIONS) and "Archive" not in chosen


def archive_options(archive: Path) -> str:
    """Return the JVM options that enable a CDS archive."""
    return f'{QUIET_ARCHIVE} "-XX:SharedArchiveFile={archive}"'
