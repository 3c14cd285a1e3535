"""The trial: malformed requests are written and answered, and the answers held to the debts."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from group_coordinator.pipeline.delta.commit import Commit, add_action
from group_coordinator.pipeline.delta.data_file import DataFile, new_path
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.log import open_log
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.schemas.tables import (
    GROUP_EVENTS,
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    to_requests,
)
from tests.trials.malformed.answering import Answering
from tests.trials.malformed.debts import Debts, TrialFailed
from tests.trials.malformed.files import MalformedFiles, Owed
from tests.trials.malformed.healthy import GROUP, HealthyGroup
from tests.trials.malformed.huge import huge_files

# Files of a commit, and rows of a file: a short trial has as many files as a long one needs rows.
_FILES = 8
_FEWEST_ROWS, _MOST_ROWS = 100, 1_000
# The huge requests come once in so many events.
_HUGE_EVERY = 100_000
_START_MS = 1_700_000_000_000
# Between two commits; the session of the healthy member is longer.
_STEP_MS = 3_000
_PROGRESS_S = 10.0
_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.max.size": 100}
# How many of the newest members later requests may come from.
_KNOWN_MEMBERS = 100
_ANSWER = ("request_id", "group_id", "error_code", "join_group", "offset_fetch")
_VIEWS = (
    "groups",
    "group_members",
    "committed_offsets",
    "offset_history",
    "rebalances",
    "expiring_offsets",
    "group_events",
    "responses",
    "rejected_requests",
)


class MalformedReport(Struct):
    """The figures of a trial; memory is the process's peak, in MiB, before the views are read.

    `early_memory` is the peak after a tenth of the events. `errors` counts the answers by error.
    """

    events: int
    answered: int
    rejected: int
    repeats: int
    healthy: int
    batches: int
    longest_batch_s: float
    seconds: float
    early_memory: int
    peak_memory: int
    errors: dict[str, int]

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as rows of a figure and its value."""
        return [
            ("malformed events", f"{self.events:,}"),
            ("answered once", f"{self.answered:,}"),
            ("rejected, because they cannot be answered", f"{self.rejected:,}"),
            ("repetitions of another", f"{self.repeats:,}"),
            ("requests of a healthy group in between, answered right", f"{self.healthy:,}"),
            ("batches", f"{self.batches:,}"),
            ("longest batch, s", f"{self.longest_batch_s:.1f}"),
            ("seconds", f"{self.seconds:,.0f}"),
            ("peak memory, MiB", f"{self.peak_memory:,}"),
            ("peak memory after a tenth of the events, MiB", f"{self.early_memory:,}"),
            *((f"answers: {error}", f"{count:,}") for error, count in self.errors.items()),
        ]


def run_malformed(events: int, seed: int, say: Callable[[str], None]) -> MalformedReport:
    """Process at least `events` malformed events on a temporary root.

    Everything but the times and the memory follows from the seed. Raises TrialFailed.
    """
    with tempfile.TemporaryDirectory(prefix="group-coordinator-trial-") as folder:
        trial = _Trial(Path(folder), seed)
        try:
            return trial.run(events, say)
        finally:
            trial.close()


class _Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self._root = str(folder / "root")
        ensure_tables(self._root)
        self._files = MalformedFiles(Random(seed))
        self._debts = Debts()
        self._healthy = HealthyGroup()
        self._answering = Answering(self._root, folder, _SETTINGS)
        self._responses = follow(table_uri(self._root, RESPONSES), _ANSWER)
        self._events = follow(table_uri(self._root, GROUP_EVENTS), ["event", "group_id", "reason"])
        self._rejected = follow(table_uri(self._root, REJECTED_REQUESTS), ["reason"])
        self._version = 0
        self._now = _START_MS
        self._longest_s = 0.0

    def run(self, events: int, say: Callable[[str], None]) -> MalformedReport:
        began = spoke = time.monotonic()
        done = next_huge = healthy = early_memory = 0
        restarted = False
        rows = min(max(events // 100, _FEWEST_ROWS), _MOST_ROWS)
        while done < events:
            files = [self._files.file(rows) for _ in range(_FILES)]
            huge = huge_files(done) if done >= next_huge else ()
            next_huge += _HUGE_EVERY if huge else 0
            done += self._write(chain(files, huge))
            self._answer()
            healthy += self._healthy.check()
            self._debts.check()
            self._now += _STEP_MS
            if done >= events // 2 and self._healthy.is_stable and not restarted:
                restarted = True
                self._answering.start()
            if done * 10 <= events or not early_memory:
                early_memory = _peak_memory()
            if time.monotonic() - spoke > _PROGRESS_S:
                spoke = time.monotonic()
                say(f"{done} of {events} events, peak memory {_peak_memory()} MiB")
        self._let_time_pass()
        # The views are read by this trial's DuckDB, and no coordinator's memory.
        peak_memory = _peak_memory()
        self._read_views()
        debts = self._debts
        return MalformedReport(
            events=done,
            answered=debts.answered,
            rejected=debts.rejected,
            repeats=debts.repeats,
            healthy=healthy,
            batches=self._answering.batches,
            longest_batch_s=self._longest_s,
            seconds=time.monotonic() - began,
            early_memory=early_memory,
            peak_memory=peak_memory,
            errors=dict(debts.errors.most_common()),
        )

    def close(self) -> None:
        self._answering.close()

    def _write(self, files: Iterable[tuple[pa.Table, Owed]]) -> int:
        """Commit the files, and one with the healthy group's requests; returns the files' rows."""
        healthy = to_requests(self._healthy.requests(self._now)), Owed({})
        folder = Path(table_uri(self._root, REQUESTS))
        actions: list[dict[str, Any]] = []
        written = 0
        for rows, owed in chain([healthy], files):
            path = new_path({}, "snappy")
            # With Arrow's own schema in the file more types come back as they were written.
            pq.write_table(rows, folder / path, store_schema=len(actions) % 2 == 0)
            status = (folder / path).stat()
            modified_ms = status.st_mtime_ns // 1_000_000
            file = DataFile(path, status.st_size, modified_ms, rows.num_rows)
            actions.insert(0, add_action(file))
            self._debts.add(owed)
            written += int(rows.num_rows)
        self._version += 1
        open_log(str(folder)).create(Commit(actions), self._version)
        return written - int(healthy[0].num_rows)

    def _answer(self) -> None:
        """Run batches until all requests are read."""
        progressed = True
        while progressed:
            began = time.monotonic()
            progressed = self._answering.answer(self._now)
            self._longest_s = max(self._longest_s, time.monotonic() - began)
            self._collect()

    def _collect(self) -> None:
        answers = self._responses.poll()
        for answer in [] if answers is None else answers.to_pylist():
            if answer["group_id"] == GROUP:
                self._healthy.answer(answer)
                continue
            self._debts.answer(answer)
            if answer["join_group"] is not None and answer["join_group"]["member_id"]:
                known = self._files.members
                known.append((answer["group_id"], answer["join_group"]["member_id"]))
                del known[:-_KNOWN_MEMBERS]
        events = self._events.poll()
        for event in [] if events is None else events.to_pylist():
            if event["event"] == "handler_failed":
                raise TrialFailed(f"group {event['group_id']!r}: {event['reason']}")
        rejected = self._rejected.poll()
        if rejected is not None:
            self._debts.reject(rejected.num_rows)

    def _let_time_pass(self) -> None:
        """Advance the clock until timers have answered all requests, at most 25 days."""
        step_ms = _STEP_MS
        while waiting := self._debts.groups:
            if not any(self._answering.has_timer(group_id) for group_id in waiting):
                raise TrialFailed(f"requests of groups without a timer wait for ever: {waiting}")
            self._now += step_ms
            step_ms += step_ms // 2
            self._answering.answer(self._now)
            self._collect()

    def _read_views(self) -> None:
        catalog = Catalog(self._root)
        for view in _VIEWS:
            catalog.query(f"SELECT count(COLUMNS(*)) FROM {view}")


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
