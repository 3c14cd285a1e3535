"""A query whose source did not start in time begins anew; any other failure ends the node."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.stream.spark_engine import QueryFailed, SparkQuery
from group_coordinator.pipeline.stream.timer_schedule import TimerSchedule, TimerWatch, WakeFile

LATE = "[STREAM_FAILED] Query x\nSparkException: Python worker failed to connect back."
OTHER = "[STREAM_FAILED] Query x\nKeyError: 'z'"


class Query:
    """A query that has ended with an error, or runs if there is none."""

    def __init__(self, error: str | None) -> None:
        self.isActive = error is None
        self._error = error

    def exception(self) -> str | None:
        return self._error


def serve(root: str, *errors: str | None) -> SparkQuery:
    """A query that ends with these errors, one start after the other."""
    starts = iter(errors)

    def begin() -> Any:
        return Query(next(starts))

    return SparkQuery(begin, Sink(root, CoordinatorSettings()), root, 0)


def test_a_late_source_is_started_again(root: str, caplog: pytest.LogCaptureFixture) -> None:
    serving = serve(root, LATE, LATE, None)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            serving.check()
    assert serving.query.isActive
    assert [record.getMessage() for record in caplog.records] == [
        "the source's Python process did not start in 10 s: the query is started again"
    ] * 2


def test_a_source_that_never_starts_is_named(root: str) -> None:
    serving = serve(root, *[LATE] * 6)
    for _ in range(5):
        serving.check()
    with pytest.raises(QueryFailed, match="Python worker failed to connect back"):
        serving.check()


class Standing:
    """A clock that stands still but for sleep."""

    def __init__(self) -> None:
        self.slept = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


class Idle:
    """A query that waits for requests: a batch ends when the source is woken."""

    isActive = True

    def __init__(self, source: WakeFile) -> None:
        self._source = source
        self.stopped_after: int | None = None

    @property
    def lastProgress(self) -> dict[str, Any]:
        return {"batchId": self._source.wakes}

    def stop(self) -> None:
        self.isActive = False
        self.stopped_after = self._source.wakes


def test_an_idle_query_is_stopped_at_once_and_between_two_batches(root: str) -> None:
    """Its source may wait for `trigger.max.interval.ms`: a batch is had begin."""
    kept: list[str] = []
    timers = TimerWatch(TimerSchedule(500), lambda _: 0, kept.append)
    source = WakeFile.open(timers.path)
    assert source is not None
    query: Any = Idle(source)
    serving = SparkQuery(lambda: query, Sink(root, CoordinatorSettings(), timers=timers), root, 0)
    timers.ended(3)
    standing = Standing()
    with clock.use(standing):
        serving.stop()
    assert standing.slept == 0, "no batch is waited for after the one that ended"
    assert query.stopped_after == 1
    assert len(kept) == 1, "the timers that the next run finds in the state"
    assert WakeFile.open(timers.path) is None, "the file is gone with the query"


def test_a_change_has_a_batch_begin(root: str) -> None:
    timers = TimerWatch(TimerSchedule(500), lambda _: 0)
    source = WakeFile.open(timers.path)
    assert source is not None
    query: Any = Idle(source)
    serving = SparkQuery(lambda: query, Sink(root, CoordinatorSettings(), timers=timers), root, 0)
    serving.change(BatchSettings(), ())
    assert source.wakes == 1
    serving.abandon()


def test_another_failure_is_final(root: str) -> None:
    serving = serve(root, OTHER)
    with pytest.raises(QueryFailed, match="KeyError: 'z'"):
        serving.check()
