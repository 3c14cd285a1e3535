"""Time of a start, without and with its checkpoint, compared with Spark reading the same rows.

The time runs from the start of the process until it prints `ready`, and includes the start of
Python and of the JVM and the first batch. Coordinator and floor are each started with the rows and
with none; the difference is the cost of the rows. Then the coordinator is killed, and started from
its streaming checkpoint. Every start is a new process, with separate peaks of memory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_tables, open_table
from group_coordinator.schemas.tables import GROUP_EVENTS
from tests.bench.answered_log import write_answered
from tests.bench.memory import Memory, peaks_of
from tests.bench.offsets_log import group_names, write_log
from tests.bench.report import Aim, Column, Report
from tests.bench.take_over_floor import MODULE as FLOOR
from tests.support.process import KillableCoordinator

RECORDS = 1_000_000
GROUPS = 10_000
COORDINATOR = "group_coordinator"


class Start(Struct, frozen=True):
    """A process: seconds until `ready`, with the rows and with none, and the peaks of memory.

    `rows_seconds` is the difference, the cost of the rows.
    """

    process: Annotated[str, Column("process")]
    seconds: Annotated[float, Column("s", ".1f")]
    empty_seconds: Annotated[float, Column("s, no rows", ".1f")]
    rows_seconds: Annotated[float, Column("s, rows", ".1f")]
    peaks: Memory


class TakeOverFigures(Report):
    """The figures of a run. `ratio` is of the whole times, `ratio_rows` of the cost of the rows.

    `ratio_rows` is None if the floor took no longer with rows than without.
    """

    records: int
    groups: int
    offsets: int
    groups_loaded: int
    coordinator: Start
    floor: Start
    restart: Start
    requests: int
    ratio: float
    ratio_rows: float | None

    def rows(self) -> list[Start]:
        """Return the floor, the coordinator without its checkpoint, and with it."""
        return [self.floor, self.coordinator, self.restart]

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the coordinator's figures without its checkpoint, divided by the floor's."""
        of_rows = {} if self.ratio_rows is None else {"s, rows": self.ratio_rows}
        return {"ratio": {"s": self.ratio} | of_rows}

    def aims(self) -> list[Aim]:
        """Return the aims: a start takes little longer than Spark's grouping of the rows."""
        return [Aim("a start over the floor's", "", 1.5, self.ratio)]


def bench_take_over(
    records: int = RECORDS,
    groups: int = GROUPS,
    requests: int = 0,
    say: Callable[[str], None] = print,
) -> TakeOverFigures:
    """Make a log, and start the floor and a coordinator on it; `say` reports progress.

    `requests` is the number of answered requests next to the log. Raises Failure unless the
    coordinator has loaded every group.
    """
    with tempfile.TemporaryDirectory(prefix="bench-take-over-") as folder:
        here = Path(folder)
        empty, full = here / "empty", here / "full"
        for root in (empty, full):
            ensure_tables(str(root))
        say(f"making a log of {records:,} records of {groups:,} groups")
        offsets = write_log(str(full), records, groups, clock_ms())
        if requests:
            say(f"making {requests:,} requests that were answered")
            write_answered(str(full), requests, group_names(groups), clock_ms())
        # The floor runs first, because a coordinator would add rows to those that the floor reads.
        floor = _measure(FLOOR, empty, full, here, say)
        coordinator = _measure(COORDINATOR, empty, full, here, say)
        restart = _measure(COORDINATOR, empty, full, here, say)
        loaded = loaded_groups(str(full))
    missing = set(group_names(groups)) - loaded
    if missing:
        raise Failure(f"{len(missing)} of {groups} groups are not there again")
    return TakeOverFigures(
        records,
        groups,
        offsets,
        len(loaded),
        coordinator,
        floor,
        replace(restart, process="coordinator, from its checkpoint"),
        requests,
        coordinator.seconds / floor.seconds,
        coordinator.rows_seconds / floor.rows_seconds if floor.rows_seconds > 0 else None,
    )


def loaded_groups(root: str) -> set[str]:
    """Return the groups that have a `loaded` event at this root."""
    columns = ["group_id", "event"]
    events = open_table(root, GROUP_EVENTS).to_pyarrow_table(columns=columns)
    loaded = events.filter(pc.field("event") == "loaded")
    return set(loaded.column("group_id").to_pylist())


def _measure(
    module: str, empty: Path, full: Path, folder: Path, say: Callable[[str], None]
) -> Start:
    name = "coordinator" if module == COORDINATOR else "floor"
    without, _ = _start(module, empty, folder / f"{name}-empty.log")
    seconds, peaks = _start(module, full, folder / f"{name}.log")
    say(f"{name}: {seconds:.1f} s, {without:.1f} s with no rows")
    shown = name if module == COORDINATOR else "Spark, read and group"
    return Start(shown, seconds, without, seconds - without, peaks)


def _start(module: str, root: Path, log: Path) -> tuple[float, Memory]:
    began = time.monotonic()
    process = KillableCoordinator(str(root), None, log, module)
    try:
        process.await_ready()
        return time.monotonic() - began, peaks_of(process.pid)
    finally:
        process.kill()
