"""A coordinator on Spark, or its floor, for as long as a bench needs it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.bench.floor import MODULE
from pipeline.process import CoordinatorProcess
from pipeline.store import ensure_tables

FLOOR = "floor"
# The floor that stores every group it has answered.
STORING = "storing floor"
COORDINATOR = "coordinator"
# As the broker is set up: a first member waits for nobody.
_CONFIG = """\
[group]
"group.initial.rebalance.delay.ms" = 0
"""


@contextlib.contextmanager
def running(machine: str, config: str = "") -> Iterator[tuple[CoordinatorProcess, str]]:
    """The process of a `machine`, FLOOR or COORDINATOR, that is ready, and its root.

    `config` is TOML with more settings. Both are gone after the block. Raises Failure if it does
    not get ready.
    """
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-bench-"))
    try:
        path = folder / "bench.toml"
        path.write_text(_CONFIG + config)
        root = str(folder / "root")
        ensure_tables(root)
        module = MODULE if machine == FLOOR else "pipeline"
        process = CoordinatorProcess(root, path, folder / "log", module)
        try:
            process.await_ready()
            yield process, root
        finally:
            process.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
