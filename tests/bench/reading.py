"""Cost of reading the requests for the nodes of one root: CPU per request of all nodes.

All nodes follow the same `requests` table, and each reads the rows of its offsets partitions. One
node, which reads everything, is the floor of four. A node skips a part of a commit by its number of
groups and its size (`pipeline.tables.request_log`). The node's partitions also matter: they are a
range after the first starts, or scattered after moves. Readers in the benchmark's process read each
commit separately.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.event_source import EventReader
from group_coordinator.pipeline.stream.event_tables import SourceOptions
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table, table_uri
from group_coordinator.schemas.tables import REQUESTS
from tests.bench.report import Column, Report
from tests.support.fleet import Member

NODES = 4
# Requests of a commit, and the groups that they are of.
SHAPES = ((10, 1), (10, 3_000), (100, 3_000), (1_000, 3_000), (5_000, 3_000))
REQUESTS_READ = 20_000
ROUNDS = 3
_MOST_COMMITS = 300


class ReadingFigures(Struct):
    """Commits of one shape; CPU in us a request, of all nodes together."""

    rows: Annotated[int, Column("requests a commit")]
    groups: Annotated[int, Column("groups")]
    commits: Annotated[int, Column("commits")]
    one_us: Annotated[float, Column("1 node", ",.1f")]
    ranges_us: Annotated[float, Column(f"{NODES} nodes, ranges", ",.1f")]
    ranges_times: Annotated[float, Column("ranges, times", ".2f")]
    scattered_us: Annotated[float, Column(f"{NODES} nodes, scattered", ",.1f")]
    scattered_times: Annotated[float, Column("scattered, times", ".2f")]


class ReadingReport(Report):
    """Each shape of commits."""

    figures: list[ReadingFigures]

    def title(self) -> str:
        """Return the description of the figures."""
        return f"CPU us a request, of all nodes together: the least of {ROUNDS} rounds"

    def rows(self) -> list[ReadingFigures]:
        """Return the rows, the smallest commits first."""
        return self.figures


def bench_reading(
    say: Callable[[str], None],
    shapes: Sequence[tuple[int, int]] = SHAPES,
    requests: int = REQUESTS_READ,
    rounds: int = ROUNDS,
) -> ReadingReport:
    """Read so many requests, in commits of each shape; `say` hears of progress."""
    figures = []
    for rows, groups in shapes:
        figures.append(_measured(rows, groups, requests, rounds))
        found = figures[-1]
        say(
            f"reading: {rows:,} requests a commit of {groups:,} groups: one node "
            f"{found.one_us:.1f} us, {NODES} nodes {found.ranges_us:.1f} and "
            f"{found.scattered_us:.1f}"
        )
    return ReadingReport(figures)


def _measured(rows: int, groups: int, requests: int, rounds: int) -> ReadingFigures:
    of = GroupCoordinatorConfig().offsets_topic_num_partitions
    commits = max(1, min(requests // rows, _MOST_COMMITS))
    cuts = [of * node // NODES for node in range(NODES + 1)]
    ranges = [Selection(tuple(range(*cuts[node : node + 2])), of) for node in range(NODES)]
    scattered = [Selection(tuple(range(node, of, NODES)), of) for node in range(NODES)]
    with tempfile.TemporaryDirectory(prefix="group-coordinator-bench-") as folder:
        root = str(Path(folder) / "root")
        _write(root, rows, groups, commits)

        def least_us(shares: Sequence[Selection]) -> float:
            spent = [sum(reading_s(root, share, 1) for share in shares) for _ in range(rounds)]
            return 1e6 * min(spent) / (rows * commits)

        one, ranged, apart = map(least_us, ([Selection()], ranges, scattered))
    return ReadingFigures(rows, groups, commits, one, ranged, ranged / one, apart, apart / one)


def _write(root: str, rows: int, groups: int, commits: int) -> None:
    """Write heartbeats of the groups in turn."""
    log = RequestLog(root)
    members = [Member(f"reading-{number}", "member") for number in range(groups)]
    number = 0
    for _ in range(commits):
        log.append([members[(number + row) % groups].heartbeat() for row in range(rows)])
        number += rows


def reading_s(root: str, share: Selection, first: int) -> float:
    """Return the CPU, s, of reading the requests from a version on, each commit separately.

    Raises Failure if they are gone from the log, which upkeep trims.
    """
    uri = table_uri(root, REQUESTS)
    reader = EventReader(
        SourceOptions(
            requests=uri,
            bootstrap=uri,
            bootstrap_version=open_table(root, REQUESTS).version() + 1,
            bootstrap_end=open_table(root, REQUESTS).version() + 1,
            first_version=first,
            wait_ms=0,
            max_files=1,
            max_bytes=1 << 30,
            max_request_bytes=1 << 20,
            selection=share,
        )
    )
    at: dict[str, Any] = reader.initialOffset()
    begin = at
    began = time.process_time()
    while True:
        found, end = reader.read(at)
        for _ in found:
            pass
        if end == at:
            if at == begin:
                raise Failure(f"no commit of {uri} can be read from version {first} on")
            return time.process_time() - began
        at = end
