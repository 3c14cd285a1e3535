"""A root that several tests use, with its coordinators and the members of its groups.

A start of a coordinator costs more than most tests. So a test gets the cluster of the previous
test, with one coordinator, and passes it on. A failed test passes on no cluster.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from group_coordinator.pipeline.tables.store import ensure_tables
from tests.end_to_end.live import LiveFleet, committed_offsets
from tests.ends import check_end
from tests.support.process import KillableCoordinator

PARTITIONS = 2
STOP_S = 60.0
CONFIG = f"""
[group]
group.initial.rebalance.delay.ms = 1000
offsets.topic.num.partitions = {PARTITIONS}
[coordinator]
lease.ms = 8000
[spark]
spark.driver.memory = "1g"
"""


class Cluster:
    """Coordinators of one root by their node, and all responses to the members.

    `disk` contains the root, unless `root` names another one; `folder` has all other files. `jars`
    is a separate Ivy folder.
    """

    def __init__(
        self, disk: Path, folder: Path, jars: Path | None = None, root: str | None = None
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.root = root or str(disk / "root")
        self.nodes: dict[int, KillableCoordinator] = {}
        self.sound = False
        self._config = folder / "c.toml"
        self._config.write_text(CONFIG + (f'spark.jars.ivy = "{jars}"\n' if jars else ""))
        self._starts = 0
        ensure_tables(self.root)
        self.live = LiveFleet(self.root)

    def start(self, *node_ids: int) -> None:
        """Start these nodes at once; return when all of them are ready."""
        for node_id in node_ids:
            self._starts += 1
            log = self.folder / f"{self._starts}-node-{node_id}.log"
            self.nodes[node_id] = KillableCoordinator(self.root, self._config, log, node_id=node_id)
        for node_id in node_ids:
            self.nodes[node_id].await_ready()

    def begin(self) -> None:
        """Start one coordinator, and form the groups."""
        self.start(1)
        self.live.fleet.form_groups()

    def one(self) -> tuple[int, KillableCoordinator]:
        """Return the only running node and its process."""
        ((node_id, process),) = self.nodes.items()
        return node_id, process

    def ask_for(self, rounds: int) -> None:
        """Let members send this many rounds of requests, and wait for all responses."""
        for _ in range(rounds):
            self.live.ask()
            self.live.listen()
            time.sleep(0.1)
        self.live.await_all()

    def check(self) -> None:
        """Assert that no request of the members was lost or decided twice."""
        live = self.live
        live.await_all()
        live.ask()
        live.await_all()
        self._check_answers()
        self.sound = len(self.nodes) == 1

    def _check_answers(self) -> None:
        live = self.live
        live.listen()
        assert live.acknowledged, "something was acknowledged"
        assert set(live.answers.values()) == {1}, "every request is answered once"
        assert not live.errors, "everybody is still a member of the generation it was in"
        assert committed_offsets(self.root) == live.acknowledged

    def stop(self) -> None:
        """Stop all coordinators in order, as a service manager: their JVMs get SIGTERM as well."""
        for process in self.nodes.values():
            os.killpg(process.pid, signal.SIGTERM)
            check_end(process.wait(STOP_S), process.log_path)
            assert "INFO stopped; other nodes" in process.last_lines().splitlines()[-1]
        self._check_answers()

    def kill(self) -> None:
        """Kill all coordinators, and remove their files."""
        for process in self.nodes.values():
            process.kill()
        self.nodes.clear()
        shutil.rmtree(self.root, ignore_errors=True)
