"""What the driver tells the source after each batch: when the next timer may be due."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.pipeline.stream.kept_looks import looks_after
from group_coordinator.pipeline.stream.offset import Planned
from group_coordinator.pipeline.stream.pace import Pace
from group_coordinator.pipeline.stream.timer_looks import NEVER_MS, TimerLooks
from group_coordinator.pipeline.stream.wake_file import WakeFile


def output(batch_ms: int | None, wake_ms: int | None, timer: bytes | None = None) -> GroupOutput:
    return GroupOutput([], [], [], [], batch_ms, wake_ms, timer)


@pytest.fixture
def pace() -> Iterator[Pace]:
    """A pace by whose log of offsets batch N has the time 1000 N."""
    found = Pace(TimerLooks(100), lambda batch_id: 1_000 * batch_id)
    yield found
    found.end()


@pytest.fixture
def source(pace: Pace) -> WakeFile:
    found = WakeFile.open(pace.path)
    assert found is not None
    return found


def run(pace: Pace, batch_id: int, *outputs: GroupOutput) -> None:
    assert list(pace.watch(outputs)) == list(outputs)
    pace.ended(batch_id)


def test_the_earliest_timer_of_all_groups_is_told(pace: Pace, source: WakeFile):
    run(pace, 1, output(1_000, 5_000), output(1_000, 3_000), output(1_000, None))
    assert source.due_ms == 3_000
    run(pace, 3, output(3_000, 9_000))
    assert source.due_ms == 5_000


def test_a_group_that_has_another_timer_is_not_looked_at_for_the_one_before(pace, source):
    run(pace, 1, output(1_000, 3_000, b"a"), output(1_000, 7_000, b"b"))
    run(pace, 2, output(2_000, 5_000, b"a"))
    assert source.due_ms == 5_000
    run(pace, 3, output(3_000, None, b"a"))
    assert source.due_ms == 7_000


def test_a_query_that_is_stopped_keeps_the_ticks_after_its_last_batch():
    kept: list[str] = []
    pace = Pace(TimerLooks(100), lambda _: 0, kept.append)
    pace.stopped()
    assert kept == [], "no batch has ended"
    run(pace, 7, output(1_000, 5_000, b"a"))
    pace.stopped()
    assert looks_after(Planned(7, ""), kept.pop(), 100, 0).ticks() == (5_000,)
    list(pace.watch([output(2_000, 9_000, b"a")]))
    pace.stopped()
    assert kept == [], "the batch that was cut off is not written"
    pace.end()


def test_a_batch_without_groups_is_asked_for_its_time(pace: Pace, source: WakeFile):
    run(pace, 1, output(1_000, 5_000))
    run(pace, 4)
    assert source.due_ms == 5_000, "the batch was before it"
    run(pace, 5)
    assert source.due_ms == NEVER_MS


def test_the_file_is_deleted_once_the_source_has_it(pace: Pace):
    run(pace, 1)
    late = WakeFile.open(pace.path)
    assert late is not None, "it was there still"
    run(pace, 2)
    assert WakeFile.open(pace.path) is None
    pace.wake()
    assert late.wakes == 1
