"""A coordinator, or its floor, in this process, for benches that ask for the time of each batch.

A batch's time runs from the commit of its requests, for which the stream is waiting, to the end
that Spark reports in the query's progress.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from pyspark.sql import SparkSession

from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.bench.empty import EmptyMachine
from group_coordinator.pipeline.bench.fleet import Fleet
from group_coordinator.pipeline.bench.running import COORDINATOR, FLOOR, STORING
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.session.start import create_session
from group_coordinator.pipeline.settings import SECTIONS, Settings, to_settings
from group_coordinator.pipeline.stream import WORKER_IMPORTS
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.stream.spark_engine import SparkEngine
from group_coordinator.pipeline.stream.stateful import MachineFactory

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from group_coordinator.schemas.messages import RequestEvent

# The first batch may load 100,000 groups.
_FIRST_BATCH_S = 1_200.0
_BATCH_S = 120.0
_POLL_S = 0.01
# The bytes that a coordinator stores for a group of one member.
_STORED = 600
_MACHINES: dict[str, MachineFactory] = {
    FLOOR: EmptyMachine,
    STORING: functools.partial(EmptyMachine, _STORED),
    COORDINATOR: BatchMachine,
}
_CHECK_S = 1.0

T = TypeVar("T")


class BatchTime(Struct):
    """The time of a batch, ms, and of it the part in which the job ran and wrote (`addBatch`).

    `rows` is the number of groups in the state store.
    """

    all_ms: float
    add_batch_ms: float
    rows: int


def bench_settings(state_store: str = "rocksdb") -> Settings:
    """A coordinator's defaults, without its waits. Raises SettingsError.

    A first join is not held for others, and a short trigger keeps empty batches from holding up the
    measured ones.
    """
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    sections["coordinator"]["state.store"] = state_store
    sections["coordinator"]["trigger.interval.ms"] = 100
    sections["coordinator"]["trigger.max.interval.ms"] = 100
    sections["group"]["group.initial.rebalance.delay.ms"] = 0
    return to_settings(sections)


@contextlib.contextmanager
def session(root: str) -> Iterator[SparkSession]:
    """Yield the active session, or one that ends with the block."""
    there = SparkSession.getActiveSession() is not None
    spark = create_session(bench_settings(), root, imports=WORKER_IMPORTS)
    try:
        yield spark
    finally:
        if not there:
            spark.stop()


@contextlib.contextmanager
def serving(root: str, settings: Settings, machine: str) -> Iterator[Turn]:
    """Run FLOOR, STORING or COORDINATOR for the block; it has finished its first batch."""
    # On a session that is there already this sets `settings`.
    spark = create_session(settings, root, imports=WORKER_IMPORTS)
    engine = SparkEngine(spark, root, settings.coordinator, _MACHINES[machine])
    coordinator = start(engine, root, settings)
    try:
        coordinator.await_ready(_FIRST_BATCH_S)
        assert engine.serving is not None  # it is ready
        yield Turn(coordinator, engine.serving.query)
    finally:
        coordinator.stop()


class Turn:
    """A running coordinator that is given one batch after the other."""

    def __init__(self, coordinator: CoordinatorNode, query: StreamingQuery) -> None:
        self._coordinator = coordinator
        self._query = query

    def batches(
        self, fleet: Fleet, count: int, requests: Callable[[], list[RequestEvent]]
    ) -> list[BatchTime]:
        """Have `count` batches of requests answered; return their times. Raises Failure."""
        return [self._batch(fleet, requests()) for _ in range(count)]

    def _batch(self, fleet: Fleet, events: list[RequestEvent]) -> BatchTime:
        before = self._last_batch()
        # After an empty batch the stream waits for requests: none of them can fall into a running
        # batch.
        self._until(lambda: self._last_batch() > before and not had_requests(self._progress()))
        before = self._last_batch()
        fleet.requests.append(events)
        appended = clock_ms()
        waiting = {event.request_id for event in events}
        self._until(functools.partial(self._answered, fleet, waiting))
        # The answers are there a little before Spark ends the batch and reports its time.
        return self._until(lambda: self._time_of(before, appended))

    def _until(self, look: Callable[[], T | None]) -> T:
        """Call `look` until it returns something. Raises Failure if the coordinator ends."""
        limit = time.monotonic() + _BATCH_S
        check = 0.0
        while not (found := look()):
            now = time.monotonic()
            if now > limit:
                raise Failure(f"no batch within {_BATCH_S:.0f} s")
            if now > check:
                self._coordinator.check()
                check = now + _CHECK_S
            time.sleep(_POLL_S)
        return found

    @staticmethod
    def _answered(fleet: Fleet, waiting: set[str]) -> bool:
        for row in fleet.answers():
            if row["error_code"]:
                raise Failure(f"{row['request_id']} was answered {row['error_code']}")
            waiting.discard(row["request_id"])
        return not waiting

    def _progress(self) -> Any:
        return self._query.lastProgress

    def _last_batch(self) -> int:
        progress = self._progress()
        return -1 if progress is None else int(progress["batchId"])

    def _time_of(self, before: int, appended: int) -> BatchTime | None:
        for progress in self._query.recentProgress:
            if progress["batchId"] > before and had_requests(progress):
                spent = progress["durationMs"]
                (state,) = progress["stateOperators"]
                began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
                ended = began.timestamp() * 1000 + spent["triggerExecution"]
                return BatchTime(ended - appended, spent["addBatch"], state["numRowsTotal"])
        return None


def had_requests(progress: Any) -> bool:
    """Whether a batch has read a commit of `requests`."""
    (source,) = progress["sources"]
    began, ended = (offset_of(source[name]) for name in ("startOffset", "endOffset"))
    return began is not None and ended is not None and began.requests < ended.requests
