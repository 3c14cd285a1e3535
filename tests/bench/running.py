"""A coordinator on Spark, its floor, or a gateway, as a process that lives as long as a block."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupts_deferred
from group_coordinator.pipeline.node.process import end
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.bench.floor import MODULE
from tests.support.broker import HOST
from tests.support.process import KillableCoordinator

FLOOR = "floor"
# The floor that also writes a state for every group that it answers.
STORING = "storing floor"
COORDINATOR = "coordinator"
# The first two minutes do not count: the JVM compiles meanwhile, and answers take longer. Under the
# load of `answer` a coordinator's p50 was, in stretches of 15 s from the start on, 239, 136, 129,
# 112, 92, 90 and 91 ms, and 80 and 77 after two minutes; the floor's 265, 147, 115, 100, 127, 82
# and 80. Under the load of `throughput` a coordinator answered, in stretches of 20 s, 24,500,
# 27,000, 28,500, 31,000, 31,500 and 34,000 heartbeats a second, and 33,500 to 42,500 in the next
# five minutes.
WARM_UP_S = 120.0
_READY_S = 60.0
# There is no initial rebalance delay, as with the broker of `tests.support.broker`.
_CONFIG = """\
[group]
"group.initial.rebalance.delay.ms" = 0
"""


@contextlib.contextmanager
def running(
    machine: str, config: str = "", root: str | None = None
) -> Iterator[tuple[KillableCoordinator, str]]:
    """Yield the process of a `machine`, FLOOR or COORDINATOR, that is ready, and its root.

    `config` is TOML with more settings. Process and root are gone after the block, but a root of
    the caller's, which must be new. Raises Failure if the process does not get ready.
    """
    with several(machine, 1, config, root) as (processes, its_root):
        yield processes[0], its_root


@contextlib.contextmanager
def several(
    machine: str, nodes: int, config: str = "", root: str | None = None
) -> Iterator[tuple[list[KillableCoordinator], str]]:
    """Yield so many nodes of one root; see `running`. A floor has one node."""
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-bench-"))
    try:
        path = folder / "bench.toml"
        path.write_text(_CONFIG + config)
        root = root or str(folder / "root")
        ensure_tables(root)
        module = MODULE if machine == FLOOR else "group_coordinator"
        processes: list[KillableCoordinator] = []
        try:
            for number in range(1, nodes + 1):
                node_id = None if nodes == 1 else number
                log = folder / f"log-{number}"
                with interrupts_deferred():
                    processes.append(KillableCoordinator(root, path, log, module, node_id))
            for process in processes:
                process.await_ready()
            yield processes, root
        finally:
            for process in processes:
                if nodes == 1:
                    process.stop()
                else:
                    # After an orderly stop the other nodes would take over its partitions.
                    process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def serving(root: str) -> Iterator[tuple[int, int]]:
    """Yield the port and the process id of a gateway of the root. Raises Failure."""
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-gateway-"))
    path = folder / "log"
    command = [
        sys.executable,
        "-m",
        "group_coordinator",
        "gateway",
        "--root",
        root,
        "--listen",
        f"{HOST}:0",
    ]
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True
        )
    try:
        limit = time.monotonic() + _READY_S
        while not (told := re.search(r"at \S+:(\d+) serves", path.read_text())):
            if process.poll() is not None or time.monotonic() > limit:
                raise Failure(f"the gateway did not come up: {path.read_text()[-500:]}")
            time.sleep(0.05)
        yield int(told[1]), process.pid
    finally:
        end(process, _READY_S)
        shutil.rmtree(folder, ignore_errors=True)
