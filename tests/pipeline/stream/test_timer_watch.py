"""What the driver tells the source after each batch: when the next timer may be due."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.pipeline.stream.offset import Planned
from group_coordinator.pipeline.stream.timer_schedule import (
    NEVER_MS,
    TimerSchedule,
    TimerWatch,
    WakeFile,
    restored_schedule,
)


def output(batch_ms: int | None, wake_ms: int | None, timer: bytes | None = None) -> GroupOutput:
    return GroupOutput([], [], [], [], batch_ms, wake_ms, timer)


@pytest.fixture
def timers() -> Iterator[TimerWatch]:
    """A watch by whose log of offsets batch N has the time 1000 N."""
    found = TimerWatch(TimerSchedule(100), lambda batch_id: 1_000 * batch_id)
    yield found
    found.end()


@pytest.fixture
def source(timers: TimerWatch) -> WakeFile:
    found = WakeFile.open(timers.path)
    assert found is not None
    return found


def run(timers: TimerWatch, batch_id: int, *outputs: GroupOutput) -> None:
    assert list(timers.watch(outputs)) == list(outputs)
    timers.ended(batch_id)


def test_the_earliest_timer_of_all_groups_is_told(timers: TimerWatch, source: WakeFile):
    run(timers, 1, output(1_000, 5_000), output(1_000, 3_000), output(1_000, None))
    assert source.due_ms == 3_000
    run(timers, 3, output(3_000, 9_000))
    assert source.due_ms == 5_000


def test_a_group_that_has_another_timer_is_not_looked_at_for_the_one_before(timers, source):
    run(timers, 1, output(1_000, 3_000, b"a"), output(1_000, 7_000, b"b"))
    run(timers, 2, output(2_000, 5_000, b"a"))
    assert source.due_ms == 5_000
    run(timers, 3, output(3_000, None, b"a"))
    assert source.due_ms == 7_000


def test_a_query_that_is_stopped_keeps_the_ticks_after_its_last_batch():
    stored: list[str] = []
    timers = TimerWatch(TimerSchedule(100), lambda _: 0, stored.append)
    timers.stopped()
    assert stored == [], "no batch has ended"
    run(timers, 7, output(1_000, 5_000, b"a"))
    timers.stopped()
    assert restored_schedule(Planned(7, ""), stored.pop(), 100, 0).ticks() == (5_000,)
    list(timers.watch([output(2_000, 9_000, b"a")]))
    timers.stopped()
    assert stored == [], "the batch that was cut off is not written"
    timers.end()


def test_a_batch_without_groups_is_asked_for_its_time(timers: TimerWatch, source: WakeFile):
    run(timers, 1, output(1_000, 5_000))
    run(timers, 4)
    assert source.due_ms == 5_000, "the batch was before it"
    run(timers, 5)
    assert source.due_ms == NEVER_MS


def test_the_file_is_deleted_once_the_source_has_it(timers: TimerWatch):
    run(timers, 1)
    late = WakeFile.open(timers.path)
    assert late is not None, "it was there still"
    run(timers, 2)
    assert WakeFile.open(timers.path) is None
    timers.wake()
    assert late.wakes == 1
