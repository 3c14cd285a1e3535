"""The Java executable that Spark starts, and its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from group_coordinator.pipeline.errors import Failure

OLDEST_JAVA = 17


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
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and there is none: {advice}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = java_version(answer.stderr)
    if found is None:
        raise JavaMissing(f"{java} -version does not tell its version: {advice}")
    if found < OLDEST_JAVA:
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and {java} is Java {found}: {advice}")
    return answer.stderr


def java_version(text: str) -> int | None:
    """Parse the major version in the output of `java -version`; 8 for "1.8.0"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
