"""A node of several waits a little for more requests, if nobody stands still meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.stream.event_source import EventReader
from group_coordinator.pipeline.stream.event_tables import SourceOptions
from group_coordinator.pipeline.stream.offset import (
    Selection,
    SelectionChange,
    change_row,
    from_plain,
)
from group_coordinator.pipeline.stream.packed_events import PACKED_SCHEMA, unpack
from group_coordinator.pipeline.stream.waiting import linger_s
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat
from tests.pipeline.stream.clock import Clock

GROUPS = [f"group-{number}" for number in range(8)]
MINE = [group for group in GROUPS if partition_for(group, 2) == 1]
THEIRS = [group for group in GROUPS if partition_for(group, 2) == 0]
HALF = Selection((1,), 2)


@pytest.fixture
def time_of_day() -> Iterator[Clock]:
    with clock.use(found := Clock()):
        yield found


@pytest.fixture
def read(root: str, bootstrap: Appender, tmp_path: Path) -> Callable[..., EventReader]:
    def open_reader(**other: Any) -> EventReader:
        wanted: dict[str, Any] = {
            "requests": table_uri(root, REQUESTS),
            "bootstrap": str(tmp_path / "bootstrap"),
            "bootstrap_version": 1,
            "bootstrap_end": 1,
            "first_version": 1,
            "wait_ms": 500,
            "max_files": 100,
            "max_bytes": 1 << 20,
            "max_request_bytes": 1 << 20,
            "selection": HALF,
            "linger_ms": 100,
        }
        return EventReader(SourceOptions(**{**wanted, **other}))

    return open_reader


def ids(batches: Any) -> list[str]:
    """The ids of all requests, by group and in the order in which they are decided."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [json.loads(text)["request_id"] for row in rows for text in unpack([row["events"]])]


def commit(request_id: str, group_id: str) -> RequestEvent:
    return RequestEvent(request_id, group_id, "offset_commit")


def leave(request_id: str, group_id: str) -> RequestEvent:
    return RequestEvent(request_id, group_id, "leave_group")


def begun(reader: EventReader, log: RequestLog) -> dict[str, Any]:
    """Where a reader is that has read something, and so begins with nothing new to say."""
    log.append([heartbeat("before", MINE[0])])
    return reader.read(reader.initialOffset())[1]


def write_at(time_of_day: Clock, log: RequestLog, **events: tuple[int, RequestEvent]) -> None:
    for at, event in events.values():
        time_of_day.writes[int(time_of_day.now_ms) + at] = partial(log.append, [event])


def test_what_comes_within_the_time_is_one_batch_and_the_same_when_it_is_run_again(
    time_of_day: Clock, log: RequestLog, read: Callable[..., EventReader]
) -> None:
    reader = read()
    start = begun(reader, log)
    write_at(
        time_of_day,
        log,
        first=(50, heartbeat("1", MINE[0])),
        second=(90, commit("2", MINE[0])),
        other=(110, heartbeat("another's", THEIRS[0])),
        third=(130, heartbeat("3", MINE[0])),
        late=(260, heartbeat("4", MINE[0])),
    )
    began_ms = time_of_day.now_ms
    batch, end = reader.read(start)
    assert ids(batch) == ["1", "2", "3"], "in the order of their commits"
    assert 190 <= time_of_day.now_ms - began_ms < 250, "100 ms after the commit"
    assert ids(read().readBetweenOffsets(start, end)) == ["1", "2", "3"]
    assert ids(reader.read(end)[0]) == ["4"]


@pytest.mark.parametrize(
    ("requests", "least", "most"),
    [
        ([heartbeat("1", MINE[0])], 250, 310),
        ([commit("1", MINE[0])], 150, 210),
        ([commit("1", MINE[0]), heartbeat("2", MINE[0])], 150, 210),
        ([RequestEvent("1", MINE[0], None)], 50, 60),
    ],
)
def test_a_heartbeat_waits_twice_as_long_as_a_commit_that_somebody_may_wait_for(
    time_of_day: Clock,
    log: RequestLog,
    read: Callable[..., EventReader],
    requests: list[RequestEvent],
    least: int,
    most: int,
) -> None:
    reader = read()
    start = begun(reader, log)
    time_of_day.writes[int(time_of_day.now_ms) + 50] = partial(log.append, requests)
    began_ms = time_of_day.now_ms
    assert ids(reader.read(start)[0]) == [request.request_id for request in requests]
    assert least <= time_of_day.now_ms - began_ms < most


def test_a_request_for_which_a_member_stands_still_begins_the_batch(
    time_of_day: Clock, log: RequestLog, read: Callable[..., EventReader]
) -> None:
    reader = read()
    start = begun(reader, log)
    write_at(
        time_of_day,
        log,
        first=(50, heartbeat('"api":"heartbeat"', MINE[0])),
        second=(80, leave('"api":"heartbeat"', MINE[1])),
        late=(120, heartbeat("late", MINE[0])),
    )
    began_ms = time_of_day.now_ms
    batch, end = reader.read(start)
    found = ids(batch)
    assert len(found) == 2
    assert 80 <= time_of_day.now_ms - began_ms < 135
    assert ids(read().readBetweenOffsets(start, end)) == found


@pytest.mark.parametrize(
    "other", [{"selection": Selection((0, 1), 2)}, {"selection": Selection()}, {"linger_ms": 0}]
)
def test_a_node_that_owns_everything_never_lingers(
    time_of_day: Clock, log: RequestLog, read: Callable[..., EventReader], other: dict[str, Any]
) -> None:
    reader = read(**other)
    start = begun(reader, log)
    write_at(time_of_day, log, first=(50, heartbeat("1", MINE[0])))
    began_ms = time_of_day.now_ms
    assert ids(reader.read(start)[0]) == ["1"]
    assert time_of_day.now_ms - began_ms < 60


def test_a_full_batch_begins_and_so_does_the_one_with_what_it_left_over(
    time_of_day: Clock, log: RequestLog, read: Callable[..., EventReader]
) -> None:
    reader = read(max_files=2)
    at = begun(reader, log)
    began_ms = time_of_day.now_ms
    for number in range(3):
        log.append([heartbeat(str(number), MINE[0])])
    found = []
    for _ in range(2):
        start, (batch, at) = at, reader.read(at)
        found.append(ids(batch))
        assert ids(read().readBetweenOffsets(start, at)) == found[-1]
    assert found == [["0", "1"], ["2"]]
    assert time_of_day.now_ms - began_ms < 10


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param(Selection((0, 1), 2, {0: 99}), ["1", "2"], id="another partition is read"),
        pytest.param(Selection((), 2), [], id="the partition is given up: its next owner has them"),
    ],
)
def test_a_change_of_what_is_read_waits_for_no_batch_that_lingers(
    time_of_day: Clock,
    log: RequestLog,
    read: Callable[..., EventReader],
    bootstrap: Appender,
    selection: Selection,
    expected: list[str],
) -> None:
    """One batch has both, selected as the change says: run again, it must have the same."""
    reader = read(run=3)
    start = begun(reader, log)
    group, event = change_row(SelectionChange(3, selection))
    rows = PACKED_SCHEMA.empty_table().from_pydict(
        {"group_id": [group], "event": [event]}, PACKED_SCHEMA
    )
    write_at(time_of_day, log, first=(50, heartbeat("1", MINE[0])))
    time_of_day.writes[int(time_of_day.now_ms) + 70] = lambda: (
        bootstrap.append(rows),
        log.append([heartbeat("2", MINE[0])]),
    )
    began_ms = time_of_day.now_ms
    batch, end = reader.read(start)
    assert ids(batch) == expected
    assert time_of_day.now_ms - began_ms < 135, "a look at what lingers, and not all of its time"
    assert from_plain(end).selection.partitions == selection.partitions
    assert ids(read(run=3).readBetweenOffsets(start, end)) == expected


def test_a_timer_that_is_due_does_not_wait_for_requests(
    time_of_day: Clock, log: RequestLog, read: Callable[..., EventReader]
) -> None:
    reader = read(linger_ms=400)
    start = begun(reader, log)
    write_at(time_of_day, log, first=(450, heartbeat("1", MINE[0])))
    began_ms = time_of_day.now_ms
    assert ids(reader.read(start)[0]) == ["1"]
    assert time_of_day.now_ms - began_ms < 525, "trigger.interval.ms, and not 850"


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), 0),
        (Selection(tuple(range(50)), 50), 0),
        (Selection((), 50), 0),
        (Selection(tuple(range(25)), 50), 0.1),
        (Selection(tuple(range(10)), 50), 0.4),
        (Selection((7,), 50), 0.5),
    ],
)
def test_the_smaller_the_share_the_longer_but_never_beyond_the_interval(
    selection: Selection, expected: float
) -> None:
    assert linger_s(selection, 100, 500) == pytest.approx(expected)
