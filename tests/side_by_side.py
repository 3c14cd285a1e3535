"""What pytest-xdist runs in one process: a file's tests, and all that share a start of Spark.

The tests that start Spark wait for most of their time, and are few and long: they come first. What
takes longest comes next, and small files last, so that all processes end at about the same time.
Small files also run while the archive of Spark's classes is made.

Its own `--dist loadgroup` is without effect under pytest 9.2, which no longer lets it rename tests.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

from tests.class_archive import ArchiveMaker

TESTS = Path(__file__).parent
# The fixtures that share a start of Spark among files.
SHARED_STARTS = ("spark", "cluster")
# The files that share nothing among their tests and take long: each test may go its own way.
SINGLE_TESTS = ("trials/test_simulation.py", "trials/test_malformed.py", "test_house.py")
# What takes longest, in this order: the starts of Spark by the time that their tests take alone,
# then the files without Spark that take more than two seconds, by the CPU time that they take. A
# test of SINGLE_TESTS may have a turn of its own.
LONGEST = (
    "trials/test_torture_kills.py",
    "spark",
    "end_to_end/test_members.py",
    "cluster",
    "benchmarks/test_on_spark.py",
    "end_to_end/test_two_coordinators.py",
    "benchmarks/test_take_over.py",
    "trials/test_simulation.py::test_a_hundred_thousand_requests_beside_faults_keep_every_promise",
    "trials/test_simulation.py",
    "trials/test_malformed.py",
    "test_house.py",
    "pipeline/client/test_member.py",
    "pipeline/client/test_poll.py",
    "pipeline/replay/test_demo_workers.py",
    "pipeline/replay/test_demo_consumers.py",
    "pipeline/ui/test_pages.py",
    "pipeline/client/test_worker.py",
    "pipeline/topics/test_offsets.py",
    "pipeline/monitor/test_metrics.py",
    "pipeline/admin/test_kafka_tools.py",
    "pipeline/gateway/test_produce.py",
    "pipeline/admin/test_options_page.py",
    "pipeline/ui/test_changing.py",
    "pipeline/admin/test_changes.py",
    "pipeline/upkeep/test_retention.py",
    "pipeline/upkeep/test_compaction.py",
    "pipeline/records/test_records.py",
    "pipeline/ui/test_verbs.py",
    "pipeline/cli/test_imports.py",
    "coordinator/consumer/test_assignors.py",
    "pipeline/monitor/test_verdicts.py",
    "pipeline/node/test_waiting_requests.py",
    "pipeline/node/test_load_events.py",
    "pipeline/monitor/test_views.py",
    "pipeline/gateway/test_fuzz.py",
    "trials/test_torture_promises.py",
)


@functools.cache
def start_of(file: str) -> str | None:
    """Name the start of Spark that a test file needs; None if it needs none.

    It is the name of a fixture where several files share one, else the file's own, as below
    `tests/`.
    """
    text = (TESTS.parent / file).read_text("utf-8")
    if "pytest.mark.spark" not in text:
        return None
    shared = [name for name in SHARED_STARTS if re.search(rf"[(,]\s*{name}[,:)]", text)]
    return shared[0] if shared else file.removeprefix("tests/")


def turn_of(nodeid: str) -> int:
    """When a test's turn comes: tests with a lower number begin first."""
    file = nodeid.partition("::")[0]
    names = (nodeid.removeprefix("tests/"), start_of(file) or file.removeprefix("tests/"))
    return min((LONGEST.index(name) for name in names if name in LONGEST), default=len(LONGEST))


class StartsShared(LoadFileScheduling):
    """Gives each process whole files, and to one process all files that share a start of Spark."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._without_spark = "not spark" in config.option.markexpr
        self._archive = ArchiveMaker()
        config.add_cleanup(self._archive.end)

    def schedule(self) -> None:
        """Begin with the archive if a test starts Spark, then share out the tests."""
        if self.collection is None:
            collected = next(iter(self.registered_collections.values()))
            if any(self._start_of(nodeid) for nodeid in collected):
                self._archive.begin()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        alone = file.removeprefix("tests/") in SINGLE_TESTS
        return self._start_of(nodeid) or (nodeid if alone else file)

    def _start_of(self, nodeid: str) -> str | None:
        return None if self._without_spark else start_of(nodeid.partition("::")[0])

    def _reschedule(self, node: Any) -> None:
        """Give a process more to do when it has one test left, which waits for the next."""
        if not self.workqueue or len(self._left(node)) < 2:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Assign the unit whose turn it is to a process, which may have one test left."""
        self.workqueue.move_to_end(self._next(node), last=False)
        super()._assign_work_unit(node)

    def _next(self, node: Any) -> str:
        units = list(self.workqueue)
        if any(self._start_of(nodeid) for nodeid in self._left(node)):
            # What is assigned now must wait for minutes: it had better be little.
            return units[-1]
        if not self._archive.is_done():
            while units:
                if not self._start_of(next(iter(self.workqueue[unit := units.pop()]))):
                    return unit
            self._archive.wait()
        return next(iter(self.workqueue))

    def _left(self, node: Any) -> list[str]:
        units = self.assigned_work[node].values()
        return [nodeid for unit in units for nodeid, done in unit.items() if not done]
