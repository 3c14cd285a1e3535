"""What pages are made of: words, chapters, charts, previews, and snapshots that are held."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from group_coordinator.pipeline.admin.plans import GroupPlan
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ui.audit import describe_request
from group_coordinator.pipeline.ui.formats import ago, clip, duration, milliseconds, number, spans
from group_coordinator.pipeline.ui.group import split_into_chapters
from group_coordinator.pipeline.ui.lag import trend
from group_coordinator.pipeline.ui.previews import PreviewExpired, Previews
from group_coordinator.pipeline.ui.root_snapshot import SnapshotCache, Unreadable

PLAN = GroupPlan("g")
AT = datetime(2026, 1, 2, 3, 4, 5)
AT_MS = 1_767_323_045_000


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 s"),
        (0.25, "0.2 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_a_time_that_has_not_come_yet_is_now() -> None:
    """A clock was set back."""
    assert ago(AT, AT_MS - 60_000) == "now"
    assert ago(AT, AT_MS + 60_000) == "1 min ago"


def test_numbers_and_texts() -> None:
    assert (number(None), number(1234567)) == ("\N{EN DASH}", "1,234,567")
    assert (milliseconds(999), milliseconds(61_000)) == ("999 ms", "1 min 1 s")
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert spans([]) == ""
    assert clip("x" * 1_000_000).endswith("(1,000,000 characters)")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"api": "delete_groups"}, "delete the group"),
        ({"api": "offset_delete", "offset_delete": {"topics": [
            {"name": "t", "partitions": [1, 2]}]}}, "delete the offsets of t 1, 2"),
        ({"api": "leave_group", "leave_group": {"members": [
            None, {"member_id": "", "group_instance_id": "i"}]}}, "remove i"),
        ({"api": "join_group", "join_group": {"group_instance_id": None, "member_id": ""}},
         "join as a new member"),
        ({"api": "offset_commit", "offset_commit": None}, "set no offsets"),
        ({"api": "offset_commit", "offset_commit": {"topics": [{"name": "t", "partitions": [
            {"partition_index": n, "committed_offset": 7} for n in range(5)]}]}},
         "set t 0 to 7, 1 to 7, 2 to 7 and 2 more"),
    ],
)  # fmt: skip
def test_what_a_request_asks_for(row: dict[str, Any], said: str) -> None:
    assert describe_request(row) == said


# --- chapters -------------------------------------------------------------------------------------


def event(seconds: float, name: str, to: str | None = None, **fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("member_id", "reason", "generation", "request_id"))
    at = AT + timedelta(seconds=seconds)
    return {**empty, "changed_at": at, "event": name, "to_state": to, **fields}


def test_a_rebalance_is_a_chapter_with_what_led_to_it() -> None:
    second, first, before = split_into_chapters(
        [
            event(0, "loaded"),
            event(1, "transition", "PreparingRebalance", reason="a joins", generation=0),
            event(2, "transition", "Stable", generation=1),
            event(9, "member_left", reason="b leaves"),
            event(9.0001, "transition", "PreparingRebalance", reason="b left", generation=1),
        ]
    )
    assert (before.is_rebalance, [each.what for each in before.events]) == (
        False,
        ["loaded by a coordinator"],
    )
    assert (first.generation, first.state, first.ms) == (1, "Stable", 1000)
    assert [each.what for each in second.events] == ["member left", "state PreparingRebalance"]
    assert (second.reason, second.state, second.ms) == ("b left", None, None)


def test_what_happened_a_millisecond_earlier_led_to_nothing() -> None:
    later, _ = split_into_chapters(
        [
            event(1, "transition", "Stable", generation=1),
            event(2, "offsets_expired"),
            event(2.002, "transition", "PreparingRebalance"),
        ]
    )
    assert len(later.events) == 1


def test_events_of_a_later_release_are_told_by_their_own_name() -> None:
    (chapter,) = split_into_chapters([event(1, "something_new")])
    assert chapter.events[0].what == "something_new"


# --- charts ---------------------------------------------------------------------------------------


def test_a_chart_goes_straight_from_value_to_value() -> None:
    points = [(AT + timedelta(seconds=5 * place), lag) for place, lag in enumerate((0, 10, 5))]
    drawn = trend(points, 100, 20, 0)
    assert drawn is not None
    assert drawn.line == "M0.0 20.0L50.0 0.0L100.0 10.0"
    assert (drawn.highest, drawn.last) == (10, 5)


def test_nothing_is_drawn_of_a_single_moment() -> None:
    assert trend([], 100, 20) is None
    assert trend([(AT, 1)], 100, 20) is None
    assert trend([(AT, 1), (AT, 2)], 100, 20) is None


def test_many_points_become_few_and_keep_the_highest() -> None:
    points = [(AT + timedelta(seconds=n), 1000 if n == 777 else 1) for n in range(10_000)]
    drawn = trend(points, 100, 20)
    assert drawn is not None
    assert drawn.line.count("L") <= 301
    assert drawn.highest == 1000


# --- previews -------------------------------------------------------------------------------------


def test_a_preview_is_taken_once_and_not_after_ten_minutes() -> None:
    now = 0.0
    previews = Previews(lambda: now)
    first, late = previews.keep("", PLAN), previews.keep("", PLAN)
    assert previews.take(first.token) == first
    with pytest.raises(PreviewExpired):
        previews.take(first.token)
    now = 601.0
    with pytest.raises(PreviewExpired):
        previews.take(late.token)


def test_the_oldest_preview_goes_if_there_are_too_many() -> None:
    previews = Previews()
    first = previews.keep("", PLAN)
    kept = [previews.keep("", PLAN) for _ in range(64)]
    assert previews.take(kept[0].token) == kept[0]
    with pytest.raises(PreviewExpired):
        previews.take(first.token)


# --- snapshots ------------------------------------------------------------------------------------


class Made:
    """A snapshot without tables, of an age and a cost that a test chooses."""

    def __init__(self, number: int, age_s: float = 0.0, took_s: float = 0.0) -> None:
        self.number, self.age_s, self.took_s = number, age_s, took_s


class Maker:
    """Makes snapshots; `go` lets one be made, and `fails` makes it fail."""

    def __init__(self, **fields: float) -> None:
        self.fields = fields
        self.count = 0
        self.fails = False
        self.go = threading.Event()
        self.go.set()

    def __call__(self, _root: str, number: int) -> Any:
        self.go.wait(10)
        self.count += 1
        if self.fails:
            raise Failure("torn")
        return Made(number, **self.fields)


def test_a_snapshot_is_read_once_while_it_is_young() -> None:
    maker = Maker(age_s=4.0)
    held = SnapshotCache("r", make=maker)
    assert [held.current().number for _ in range(3)] == [1, 1, 1]
    assert maker.count == 1


def test_an_old_snapshot_is_shown_while_the_next_one_is_read() -> None:
    maker = Maker(age_s=7.0)
    held = SnapshotCache("r", make=maker)
    held.current()
    maker.go.clear()
    assert [held.current().number for _ in range(3)] == [1, 1, 1]
    maker.go.set()
    assert held.refreshed().number == 3


def test_a_root_that_takes_long_to_read_is_read_seldom() -> None:
    maker = Maker(age_s=50.0, took_s=6.0)
    held = SnapshotCache("r", make=maker)
    assert [held.current().number for _ in range(3)] == [1, 1, 1]
    assert maker.count == 1


def test_nobody_is_shown_what_was_read_long_ago() -> None:
    maker = Maker(age_s=600.0)
    held = SnapshotCache("r", make=maker)
    assert held.current().number == 1
    assert held.current().number == 2


def test_a_failure_leaves_the_snapshot_before_and_is_told() -> None:
    maker = Maker(age_s=7.0)
    held = SnapshotCache("r", make=maker)
    held.current()
    maker.fails = True
    with pytest.raises(Unreadable, match="torn"):
        held.refreshed()
    assert held.current().number == 1
    assert held.problem == "torn"


def test_without_any_snapshot_a_failure_is_raised() -> None:
    maker = Maker()
    maker.fails = True
    with pytest.raises(Unreadable, match="torn"):
        SnapshotCache("r", make=maker).current()
