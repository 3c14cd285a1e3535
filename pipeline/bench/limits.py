"""How many commits a second one table takes: the limit of one root that more nodes do not move.

Writers, each a process, append to one `requests` table as fast as they can. Commits to a table are
serial: a writer that finds its version taken tries the next one. `pipeline/bench/LIMITS.md` says
what follows, and `bench size` what a number of members takes.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.fleet import Member
from group_coordinator.pipeline.bench.report import Column, Report
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import REQUESTS

WRITERS = (1, 2, 4, 8)
ROWS = 100
_GROUPS = 50
# Until all writers have started, s: a process imports Arrow and opens the table.
_START_S = 5.0


class CommitRate(Struct):
    """How many commits so many writers of one table make. `slowest` is one writer's."""

    writers: Annotated[int, Column("writers")]
    per_second: Annotated[float, Column("commits/s", ",.1f")]
    slowest: Annotated[float, Column("of the slowest writer", ",.1f")]
    cpu_ms: Annotated[float, Column("CPU ms a commit", ".2f")]


class LimitsReport(Report):
    """Commits of `rows_per_commit` requests each to one table."""

    rows_per_commit: int
    rates: list[CommitRate]

    def title(self) -> str:
        """What a commit has."""
        return f"commits of {self.rows_per_commit} heartbeats to one table"

    def rows(self) -> list[CommitRate]:
        """Each number of writers."""
        return self.rates


def bench_limits(
    seconds: float,
    say: Callable[[str], None],
    writers: Sequence[int] = WRITERS,
    root: str | None = None,
    rows: int = ROWS,
) -> LimitsReport:
    """Let each number of writers append for so long, s; `say` hears of progress.

    `root` is where the tables lie, which stay; None is a temporary folder. Raises Failure.
    """
    rates = []
    with tempfile.TemporaryDirectory(prefix="group-coordinator-bench-") as folder:
        for count in writers:
            under = f"{(root or folder).rstrip('/')}/limits-{uuid.uuid4().hex[:8]}"
            ensure_table(under, REQUESTS)
            rates.append(_measured(under, count, seconds, rows))
            say(f"limits: {count} writers: {rates[-1].per_second:.1f} commits/s")
    return LimitsReport(rows, rates)


def _measured(root: str, count: int, seconds: float, rows: int) -> CommitRate:
    begin = time.time() + _START_S
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        found = [pool.submit(write, root, begin, seconds, rows) for _ in range(count)]
        each = [one.result() for one in found]
    commits = sum(done for done, _ in each)
    if not commits:
        raise Failure(f"{count} writers made no commit within {seconds:g} s")
    spent = sum(cpu for _, cpu in each)
    slowest = min(done for done, _ in each)
    return CommitRate(count, commits / seconds, slowest / seconds, 1000 * spent / commits)


def write(root: str, begin: float, seconds: float, rows: int) -> tuple[int, float]:
    """Append from a time on, s since 1970, for so long; return how many commits, and the CPU, s."""
    log = RequestLog(root)
    members = [Member(f"limits-{n % _GROUPS}", f"member-{n}") for n in range(rows)]
    time.sleep(max(0.0, begin - time.time()))
    done, cpu = 0, time.process_time()
    # Once at least: on a busy machine a writer may be late for all of its time.
    while not done or time.time() < begin + seconds:
        log.append([member.heartbeat() for member in members])
        done += 1
    return done, time.process_time() - cpu
