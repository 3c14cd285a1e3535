"""The machine of the figures."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from group_coordinator.pipeline.session.java import find_java

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "pandas", "msgspec", "duckdb")
# The load of the minute before the start, because a measurement itself loads the machine.
_LOAD = os.getloadavg()[0]


class Host(Struct):
    """Cores, memory in bytes, and versions; `load` is the load average of the minute before.

    A load of more than a few tenths before a benchmark means that other programs use the machine.
    """

    cores: int
    memory: int
    cpu: str
    system: str
    python: str
    java: str
    packages: dict[str, str]
    load: float

    def machine(self) -> str:
        """The cores and memory in words."""
        return f"{self.cores} cores ({self.cpu}), {self.memory / 2**30:.0f} GiB of memory"

    def lines(self) -> list[str]:
        """Return the host in words."""
        return [
            f"{self.machine()}; load {self.load:.1f} when it began",
            f"{self.system}; Python {self.python}; {self.java}",
            ", ".join(f"{name} {number}" for name, number in self.packages.items()),
        ]


def this_host() -> Host:
    """Return this machine, with the installed versions."""
    return Host(
        cores=os.cpu_count() or 1,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cpu=_cpu(),
        system=platform.platform(),
        python=platform.python_version(),
        java=_java(),
        packages={name: version(name) for name in _PACKAGES},
        load=_LOAD,
    )


def _java() -> str:
    java = find_java()
    if java is None:
        return "no Java"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    # Before its version a JVM prints the options from the environment.
    return next((line for line in answer.stderr.splitlines() if ' version "' in line), "no version")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
