"""After a take-over a group's time does not fall below its log's, whatever the clock says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.group.batch import BatchResult, BatchSettings
from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT, remember_event
from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.log_time import MOST_BEHIND_MS, LogTime, log_time
from group_coordinator.coordinator.group.machine import BatchMachine
from tests.coordinator.test_claims import commit

NOW = 1_000_000
BEHIND_MS = 150_000
TOLD = remember_event(b"", NOW + BEHIND_MS)
TIMES = st.integers(0, 2**41)
LOG_TIMES = st.builds(
    lambda since, behind: LogTime(since + behind, since), TIMES, st.integers(1, MOST_BEHIND_MS)
)


def decide(state: bytes | None, now: int, *events: str) -> BatchResult:
    return BatchMachine().process("g", state, list(events), now)


def answered_at(result: BatchResult) -> list[int | None]:
    assert result.output is not None
    return [each.responded_at for each in result.output.responses]


def join(request_id: str) -> str:
    body = {"session_timeout_ms": 10_000, "protocol_type": "consumer"}
    body |= {"protocols": [{"name": "range", "metadata": ""}]}
    request = {"request_id": request_id, "group_id": "g", "api": "join_group", "api_version": 3}
    return json.dumps(request | {"join_group": body})


@given(LOG_TIMES, TIMES, TIMES)
def test_the_time_never_runs_back_and_is_never_behind_the_clock(
    time: LogTime, one: int, other: int
) -> None:
    earlier, later = sorted((one, other))
    assert time.at(earlier) <= time.at(later)
    assert time.at(later) >= later
    assert time.at(time.since) == time.newest


@given(LOG_TIMES, TIMES)
def test_what_is_due_at_a_time_is_due_at_the_first_reading_of_the_clock_that_gives_it(
    time: LogTime, due: int
) -> None:
    clock = time.clock_at(due)
    assert time.at(clock) >= due > time.at(clock - 1)


def test_a_clock_catches_up_in_ten_times_what_it_was_behind() -> None:
    time = LogTime(NOW + BEHIND_MS, NOW)
    assert time.at(NOW + 1_000) == NOW + BEHIND_MS + 900
    caught_up = NOW + 10 * BEHIND_MS
    assert time.at(caught_up - 10) > caught_up - 10
    assert time.at(caught_up) == caught_up


@pytest.mark.parametrize(
    ("newest", "found"),
    [
        (NOW - 1, None),
        (NOW, None),
        (NOW + 1, LogTime(NOW + 1, NOW)),
        (NOW + MOST_BEHIND_MS, LogTime(NOW + MOST_BEHIND_MS, NOW)),
        (NOW + MOST_BEHIND_MS + 1, None),
    ],
)
def test_only_from_a_time_that_is_not_too_far_ahead_does_a_group_go_on(
    newest: int, found: LogTime | None
) -> None:
    assert log_time(newest, NOW) == found


def test_a_group_is_decided_by_its_log_s_time_until_the_clock_has_caught_up() -> None:
    first = decide(None, NOW, TOLD, commit("r0", 0, "g"))
    assert answered_at(first) == [NOW + BEHIND_MS]
    assert first == decide(None, NOW, TOLD, commit("r0", 0, "g")), "when it is run again"
    second = decide(first.state, NOW + 1_000, commit("r1", 1, "g"))
    assert answered_at(second) == [NOW + BEHIND_MS + 900]
    caught_up = NOW + 10 * BEHIND_MS
    third = decide(second.state, caught_up, commit("r2", 2, "g"))
    assert answered_at(third) == [caught_up]
    assert decode(third.state).log_time is None
    corrected = decide(second.state, NOW + BEHIND_MS + 2_000, commit("r2", 2, "g"))
    assert answered_at(corrected) == [NOW + 2 * BEHIND_MS + 2_000 - BEHIND_MS // 10 - 200]


def test_its_timers_are_called_by_the_clock() -> None:
    """The join of an empty group waits for group.initial.rebalance.delay.ms, not for minutes."""
    waits = decide(None, NOW, TOLD, join("j"))
    assert waits.deadline == NOW + -(-3_000 * 10 // 9)
    early = decide(waits.state, waits.deadline - 1)
    assert early.output is None or early.output.responses == []
    (joined,) = answered_at(decide(waits.state, waits.deadline))
    assert joined == NOW + BEHIND_MS + 3_000


def test_what_it_is_told_later_sets_its_time_back_in_no_case() -> None:
    first = decide(None, NOW, TOLD, commit("r0", 0, "g"))
    for log_ms in (None, NOW - 1, NOW + BEHIND_MS, NOW + MOST_BEHIND_MS + 2_000):
        again = decide(first.state, NOW + 1_000, remember_event(b"", log_ms), commit("r1", 1, "g"))
        assert answered_at(again) == [NOW + BEHIND_MS + 900]
    ahead = remember_event(b"", NOW + BEHIND_MS + 901)
    again = decide(first.state, NOW + 1_000, WAKE_EVENT, ahead, commit("r1", 1, "g"))
    assert answered_at(again) == [NOW + BEHIND_MS + 901]


def test_what_waits_when_it_is_given_up_is_answered_by_its_log_s_time() -> None:
    mine = BatchSettings(claims={3: 1})
    waits = BatchMachine(mine).process("g", None, [TOLD, join("j")], NOW)
    leaving = BatchMachine(BatchSettings(claims={}, unloading={3: 1}))
    given_up = leaving.process("g", waits.state, [UNLOAD_EVENT], NOW + 1_000)
    assert answered_at(given_up) == [NOW + BEHIND_MS + 900]
