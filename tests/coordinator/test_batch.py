"""One group in a micro-batch: the rules of the stream in addition to Kafka's."""

from __future__ import annotations

import json
from sys import byteorder
from typing import Any

import msgspec
import pytest

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group import batch as batch_module
from group_coordinator.coordinator.group import coordinator as coordinator_module
from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput, new_member_uuid
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.coordinator import HANDLERS
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.dedup import MAX_RECENT, RecentRequests, digest
from group_coordinator.coordinator.group.group_snapshot import (
    VERSION,
    GroupSnapshot,
    UnknownSnapshot,
    decode,
    encode,
)
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.records import CoordinatorRecord

GROUP_ID = "groupId"
SESSION_MS = 10_000
MINUTE = 60_000
CHECK = 10 * MINUTE


class Stream:
    """A group's stream: batches are processed one after the other, each with the previous state."""

    def __init__(self, settings: dict[str, Any] | None = None, **fields: Any) -> None:
        config = parse_config({"group.initial.rebalance.delay.ms": 0, **(settings or {})})
        self.settings = BatchSettings(config=config, **fields)
        self.state: bytes | None = None
        self.deadline: int | None = None

    def batch(self, now: int, *events: str) -> GroupOutput:
        """Process one batch; return its output, which may be empty."""
        result = BatchMachine(self.settings).process(GROUP_ID, self.state, list(events), now)
        self.state, self.deadline = result.state, result.deadline
        return result.output or GroupOutput([], [], [], [])

    def restart(self) -> None:
        """Restart the coordinator."""
        epoch = self.settings.start_epoch + 1
        self.settings = msgspec.structs.replace(self.settings, start_epoch=epoch)

    @property
    def snapshot(self) -> GroupSnapshot:
        return decode(self.state)

    @property
    def group(self) -> ClassicGroup:
        group = self.snapshot.group
        assert group is not None
        return group

    def stable(self, now: int = 0) -> str:
        """Create a group of one member, joined and synced; return its id."""
        self.batch(now, join("setup-join"))
        member_id = next(iter(self.group.members))
        self.batch(now, sync("setup-sync", member_id))
        assert self.group.state is GroupState.STABLE
        return member_id


def event(request_id: str | None, api: str, body: Any, **fields: Any) -> str:
    """Return a request event as it is read from the table."""
    whole = {"request_id": request_id, "group_id": GROUP_ID, "api": api, api: body, **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not None})


def join(request_id: str, member_id: str = "", version: int = 3, **fields: Any) -> str:
    body = {
        "session_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
        "member_id": member_id,
        **fields,
    }
    return event(request_id, "join_group", body, api_version=version, client_id="client")


def sync(request_id: str, member_id: str, generation: int = 1) -> str:
    return event(request_id, "sync_group", {"generation_id": generation, "member_id": member_id})


def heartbeat(request_id: str, member_id: str, generation: int = 1) -> str:
    return event(request_id, "heartbeat", {"generation_id": generation, "member_id": member_id})


def commit(request_id: str, offset: int, member_id: str = "", generation: int = -1) -> str:
    body = {
        "generation_id": generation,
        "member_id": member_id,
        "topics": [
            {"name": "foo", "partitions": [{"partition_index": 0, "committed_offset": offset}]}
        ],
    }
    return event(request_id, "offset_commit", body)


def load_event(records: list[CoordinatorRecord]) -> str:
    """Return the control event that loads the group from these records."""
    rows = msgspec.json.encode(records).decode()
    return f'{{"control":"load","records":{rows}}}'


def codes(output: GroupOutput) -> dict[str, int]:
    """Return the error codes by request id; fail if a request is answered twice."""
    found = {response.request_id: response.error_code for response in output.responses}
    assert len(found) == len(output.responses)
    return found


def committed(group: ClassicGroup) -> int:
    return group.offsets["foo"][0].offset


# --- a repeated request ---------------------------------------------------------------------------


def test_a_request_that_is_in_a_batch_twice_is_answered_once() -> None:
    stream = Stream()
    output = stream.batch(0, commit("a", 1), commit("a", 1), commit("b", 2))
    assert codes(output) == {"a": 0, "b": 0}
    assert len(output.records) == 2


def test_a_request_that_comes_again_in_a_later_batch_is_not_answered_again() -> None:
    stream = Stream()
    stream.batch(0, commit("a", 1))
    stream.batch(1, commit("b", 2))
    output = stream.batch(2, commit("a", 1))
    assert output == GroupOutput([], [], [], [])
    assert committed(stream.group) == 2


def test_a_repeated_join_does_not_make_a_second_member() -> None:
    stream = Stream()
    stream.batch(0, join("a"))
    stream.batch(1, join("a"))
    assert len(stream.group.members) == 1


def test_a_repeated_malformed_event_is_answered_once() -> None:
    stream = Stream()
    broken = event("a", "no_such_api", {})
    assert codes(stream.batch(0, broken, broken)) == {"a": 42}
    assert stream.batch(1, broken).responses == []


def test_a_request_is_remembered_for_a_window_only() -> None:
    stream = Stream(dedup_window_ms=1000)
    stream.batch(0, commit("a", 1))
    assert stream.batch(999, commit("a", 1)).responses == []
    stream.batch(1001, commit("b", 1))
    assert codes(stream.batch(1002, commit("a", 1))) == {"a": 0}


def test_a_commit_that_comes_again_within_the_window_is_not_decided_whatever_came_between() -> None:
    stream = Stream()
    for now in range(1_200):
        stream.batch(now, commit(f"c{now}", now))
    assert codes(stream.batch(1_200, commit("c0", 0))) == {}
    assert committed(stream.group) == 1_199


def test_commits_are_refused_while_the_window_has_no_room_for_them() -> None:
    """If a commit were forgotten, its repetition could set the offset back."""
    stream = Stream(dedup_max_ids=3, dedup_window_ms=1_000)
    first = stream.batch(0, *(commit(name, 1) for name in "abcd"))
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(first) == {"a": 0, "b": 0, "c": 0, "d": refused}
    (event,) = [event for event in first.events if event.event == "requests_refused"]
    assert event.reason is not None and event.reason.startswith("1 requests")
    assert "request.dedup.max.ids" in (first.responses[-1].error_message or "")
    second = stream.batch(999, commit("a", 9), commit("e", 9))
    assert codes(second) == {"e": refused}
    assert committed(stream.group) == 1
    assert codes(stream.batch(1_000, commit("f", 2))) == {"f": 0}
    assert committed(stream.group) == 2


def test_a_clock_that_was_set_back_does_not_fill_the_window_for_good() -> None:
    day_ms = 86_400_000
    stream = Stream(dedup_max_ids=2, dedup_window_ms=1_000)
    assert codes(stream.batch(day_ms, commit("a", 1))) == {"a": 0}
    assert codes(stream.batch(0, commit("b", 2), commit("c", 3)))["c"] != 0
    assert codes(stream.batch(999, commit("a", 1), commit("d", 4)))["d"] != 0
    assert codes(stream.batch(1_000, commit("e", 5))) == {"e": 0}


def test_a_refused_request_is_answered_once() -> None:
    stream = Stream(dedup_max_ids=1)
    assert codes(stream.batch(0, commit("a", 1), commit("b", 2), commit("b", 2)))["b"] != 0
    assert codes(stream.batch(1, commit("b", 2))) == {}


def test_heartbeats_and_fetches_are_answered_while_commits_are_refused() -> None:
    stream = Stream(dedup_max_ids=3)
    member_id = stream.stable()
    fetch = event("f", "offset_fetch", {"topics": None})
    last, over = (commit(name, 1, member_id, 1) for name in "ab")
    output = stream.batch(1, last, over, heartbeat("h", member_id), fetch)
    assert codes(output) == {"a": 0, "b": ErrorCode.COORDINATOR_NOT_AVAILABLE, "h": 0, "f": 0}


def test_of_heartbeats_the_last_are_remembered() -> None:
    """A second response to an older one does no harm."""
    stream = Stream()
    member_id = stream.stable()
    stream.batch(1, *(heartbeat(f"h{number}", member_id) for number in range(MAX_RECENT + 1)))
    assert stream.snapshot.recent.count == MAX_RECENT
    assert codes(stream.batch(2, *(heartbeat(f"h{n}", member_id) for n in range(3)))) == {"h0": 0}


def test_an_id_that_comes_again_with_another_api_is_not_answered_again() -> None:
    stream = Stream()
    stream.batch(0, commit("a", 1))
    assert codes(stream.batch(1, heartbeat("a", "stranger"))) == {}


def test_a_refusal_outlives_a_handler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    stream = Stream(dedup_max_ids=1)
    output = stream.batch(0, commit("a", 1), commit("b", 2), heartbeat("bad", "x"))
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(output) == {"a": 0, "b": refused, "bad": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert committed(stream.group) == 1


def test_a_join_that_comes_again_after_it_was_forgotten_finds_the_member_it_made() -> None:
    stream = Stream(dedup_window_ms=1000)
    member_id = stream.stable()
    stream.batch(2000, heartbeat("h", member_id))
    (response,) = stream.batch(2001, join("setup-join")).responses
    assert response.join_group is not None
    assert response.join_group.member_id == member_id
    assert list(stream.group.members) == [member_id]
    assert stream.group.supported_protocols == {"range": 1}


def test_what_waits_and_comes_again_after_it_was_forgotten_is_answered_once() -> None:
    stream = Stream({"group.initial.rebalance.delay.ms": 5000}, dedup_window_ms=1000)
    stream.batch(0, join("a"))
    stream.batch(1500, heartbeat("x", "stranger"))
    assert stream.batch(2000, join("a")).responses == []
    assert codes(stream.batch(5000)) == {"a": 0}
    stream.batch(5001, join("b"), join("a2", f"client-{new_member_uuid('a')}"))
    assert stream.group.state is GroupState.COMPLETING_REBALANCE
    follower = f"client-{new_member_uuid('b')}"
    generation = stream.group.generation_id
    stream.batch(5002, sync("s", follower, generation))
    stream.batch(6500, heartbeat("h", follower, generation))
    assert stream.batch(7000, sync("s", follower, generation)).responses == []
    leader = f"client-{new_member_uuid('a')}"
    assert codes(stream.batch(7001, sync("t", leader, generation))) == {"t": 0, "s": 0}


def test_a_state_of_the_last_release_is_read_with_the_requests_that_it_remembers() -> None:
    """All of them were in one list of chunks, and there was no window."""
    stream = Stream()
    stream.batch(0, commit("b", 2))
    group, _, *times, _ = msgspec.msgpack.decode((stream.state or b"")[1:])
    recent = RecentRequests([(0, b"".join(digest(name).to_bytes(8, byteorder) for name in "ab"))])
    stream.state = bytes((VERSION,)) + msgspec.msgpack.encode((group, recent, *times))
    assert codes(stream.batch(1, commit("a", 1), commit("c", 3))) == {"c": 0}
    assert codes(stream.batch(2, commit("b", 2))) == {}


def test_one_batch_larger_than_the_memory_is_still_answered_once_each() -> None:
    stream = Stream(dedup_max_ids=2)
    output = stream.batch(0, *(commit(name, 1) for name in "abcabc"))
    assert list(codes(output)) == ["a", "b", "c"]
    assert stream.snapshot.window.count == 2


# --- events that are no requests ------------------------------------------------------------------

MALFORMED = [
    pytest.param(event("m", "heartbeat", None), 42, "no heartbeat body", id="no-body"),
    pytest.param(event("m", "list_groups", {}), 42, "unknown api 'list_groups'", id="unknown-api"),
    pytest.param(
        event("m", "heartbeat", {"member_id": "x"}), 42, "`generation_id`", id="missing-field"
    ),
    pytest.param(
        event("m", "heartbeat", {"member_id": 7, "generation_id": 1}),
        42,
        "Expected `str`, got `int`",
        id="wrong-type",
    ),
    pytest.param(
        event("m", "heartbeat", {"member_id": "x", "generation_id": 2**31}),
        42,
        "generation_id",
        id="out-of-range",
    ),
    pytest.param(
        event("m", "heartbeat", {"member_id": "x", "generation_id": 1}, api_version=5),
        35,
        "api_version 5 of heartbeat is outside 0..4",
        id="version-too-new",
    ),
    pytest.param(
        event("m", "heartbeat", {"member_id": "x", "generation_id": 1}, api_version=-1),
        35,
        "outside 0..4",
        id="negative-version",
    ),
    pytest.param(
        event("m", "sync_group", {"generation_id": 1, "member_id": "x", "assignments": "no"}),
        42,
        "Expected `array | null`, got `str`",
        id="wrong-list",
    ),
]


@pytest.mark.parametrize(("text", "code", "message"), MALFORMED)
def test_a_malformed_event_is_told_what_was_wrong_and_disturbs_nothing(
    text: str, code: int, message: str
) -> None:
    stream = Stream()
    output = stream.batch(0, commit("before", 1), text, commit("after", 2))
    assert codes(output) == {"before": 0, "m": code, "after": 0}
    (answer,) = [r for r in output.responses if r.request_id == "m"]
    assert message in (answer.error_message or "")
    assert output.rejected == []
    assert committed(stream.group) == 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="not-json"),
        pytest.param("", id="nothing"),
        pytest.param("[]", id="not-an-object"),
        pytest.param(event(None, "heartbeat", {}), id="no-request-id"),
        pytest.param('{"request_id": 7, "group_id": "g", "api": "heartbeat"}', id="numeric-id"),
        pytest.param('{"request_id": "m", "x": ' + "[" * 100_000, id="too-deep"),
        pytest.param('{"request_id": "\ud800"}', id="not-unicode"),
    ],
)
def test_an_event_that_names_nobody_to_answer_is_rejected_whole(text: str) -> None:
    stream = Stream()
    output = stream.batch(5, commit("before", 1), text, commit("after", 2))
    assert codes(output) == {"before": 0, "after": 0}
    (rejected,) = output.rejected
    assert (rejected.event, rejected.rejected_at) == (text, 5)
    assert rejected.reason.startswith("no request_id")


def test_events_without_a_group_are_rejected_whole() -> None:
    machine = BatchMachine(BatchSettings())
    result = machine.process(None, None, ["{", event("a", "heartbeat", {})], 5)
    assert (result.state, result.deadline) == (None, None)
    assert result.output is not None
    assert [rejected.reason for rejected in result.output.rejected] == ["no group_id"] * 2
    assert machine.process(None, None, [], 5).output is None


# --- a bug of this project ------------------------------------------------------------------------


def ruin(decision: Decision, *_: object) -> None:
    """Change everything that a handler can change, and fail."""
    decision.present.generation_id = 99
    decision.present.members.clear()
    decision.append(decision.group_record(None, "ruin"))
    decision.note("ruin", "ruin")
    decision.responses.clear()
    raise ZeroDivisionError("a bug")


def test_a_handler_that_fails_costs_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    stream, clean = Stream(), Stream()
    for one in (stream, clean):
        member_id = one.stable()
    before = commit("before", 1, member_id, 1)
    after = commit("after", 2, member_id, 1)
    malformed = event("malformed", "no_such_api", {})
    output = stream.batch(1, before, malformed, heartbeat("bad", member_id), after)
    expected = clean.batch(1, before, malformed, after)
    assert [response.request_id for response in output.responses] == [
        "before",
        "malformed",
        "bad",
        "after",
    ]
    (bad,) = [r for r in output.responses if r.request_id == "bad"]
    assert (bad.error_code, bad.error) == (-1, "UNKNOWN_SERVER_ERROR")
    assert [r for r in output.responses if r.request_id != "bad"] == expected.responses
    assert output.records == expected.records
    assert stream.group == clean.group


def test_a_handler_that_fails_leaves_its_traceback_in_the_audit_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    stream = Stream()
    output = stream.batch(1, heartbeat("bad", stream.stable()))
    (failed,) = output.events
    assert (failed.event, failed.request_id) == ("handler_failed", "bad")
    assert "ZeroDivisionError: a bug" in (failed.reason or "")
    assert "in ruin" in (failed.reason or "")


def test_handlers_may_fail_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    stream = Stream()
    member_id = stream.stable()
    events = [
        text
        for index in range(3)
        for text in (
            heartbeat(f"bad-{index}", member_id),
            commit(f"c-{index}", index, member_id, 1),
        )
    ]
    output = stream.batch(1, *events)
    assert list(codes(output).values()) == [-1, 0, -1, 0, -1, 0]
    assert committed(stream.group) == 2


@pytest.mark.parametrize("api", sorted(HANDLERS))
def test_whatever_fails_is_answered_in_the_shape_of_its_api(
    monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    bodies: dict[str, Any] = {
        "join_group": {"session_timeout_ms": SESSION_MS, "protocol_type": "c", "protocols": []},
        "sync_group": {"generation_id": 1, "member_id": "x"},
        "heartbeat": {"generation_id": 1, "member_id": "x"},
        "leave_group": {"members": []},
        "offset_commit": {"topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "committed_offset": 1}]}]},
        "offset_delete": {"topics": []},
    }  # fmt: skip
    monkeypatch.setitem(HANDLERS, api, ruin)
    (response,) = Stream().batch(0, event("bad", api, bodies.get(api, {}))).responses
    assert response.error_code == -1
    assert getattr(response, api) is not None


def test_a_failure_of_find_coordinator_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(coordinator_module.GroupCoordinator, "_find_coordinator", fail)
    output = Stream().batch(0, event("bad", "find_coordinator", {}))
    assert codes(output) == {"bad": -1}


def test_a_parked_join_outlives_a_handler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    stream = Stream({"group.initial.rebalance.delay.ms": 100})
    output = stream.batch(0, join("parked"), heartbeat("bad", "x"))
    assert codes(output) == {"bad": -1}
    assert codes(stream.batch(100)) == {"parked": 0}


def test_a_timer_that_fails_leaves_the_group_as_it_was_and_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    member_id = stream.stable()
    with monkeypatch.context() as broken:
        broken.setattr(coordinator_module, "expire_session", ruin)
        output = stream.batch(SESSION_MS)
        assert [event.event for event in output.events] == ["handler_failed"]
        assert "timer: " in (output.events[0].reason or "")
        assert "ZeroDivisionError" in (output.events[0].reason or "")
        assert output.records == []
    assert list(stream.group.members) == [member_id]
    assert stream.deadline is not None
    assert stream.deadline > SESSION_MS
    later = stream.batch(stream.deadline)
    assert "member_expired" in [event.event for event in later.events]


def test_a_timer_that_fails_does_not_undo_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    member_id = stream.stable()
    pending = join("pending", version=9, session_timeout_ms=SESSION_MS - 1)
    stream.batch(0, pending)
    assert len(stream.group.pending_joins) == 1
    monkeypatch.setattr(coordinator_module, "expire_session", ruin)
    stream.batch(SESSION_MS)
    assert stream.group.pending_joins == {}
    assert list(stream.group.members) == [member_id]


def test_a_timer_that_fails_does_not_undo_the_requests_of_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    stream.stable()
    monkeypatch.setattr(coordinator_module, "expire_session", ruin)
    output = stream.batch(SESSION_MS, commit("c", 1, "stranger", 1))
    assert codes(output) == {"c": ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_cleanup_that_fails_leaves_the_group_as_it_was_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream({"offsets.retention.minutes": 1})
    stream.batch(0, commit("c", 1))
    with monkeypatch.context() as broken:
        broken.setattr(batch_module, "cleanup", ruin)
        output = stream.batch(CHECK)
        assert [event.event for event in output.events] == ["handler_failed"]
        assert output.records == []
    assert committed(stream.group) == 1
    assert stream.deadline == 2 * CHECK
    stream.batch(2 * CHECK)
    assert stream.state is None


# --- requests and timers --------------------------------------------------------------------------


def test_requests_come_before_timers() -> None:
    stream = Stream()
    member_id = stream.stable()
    assert stream.deadline == SESSION_MS
    output = stream.batch(SESSION_MS, heartbeat("late", member_id))
    assert codes(output) == {"late": 0}
    assert stream.deadline == 2 * SESSION_MS


def test_a_timer_that_is_due_fires_without_a_request() -> None:
    stream = Stream()
    member_id = stream.stable()
    assert stream.batch(SESSION_MS - 1) == GroupOutput([], [], [], [])
    output = stream.batch(SESSION_MS)
    (expired,) = [event for event in output.events if event.event == "member_expired"]
    assert (expired.member_id, expired.at) == (member_id, SESSION_MS)
    assert stream.group.state is GroupState.EMPTY


def test_all_timers_that_are_due_fire_in_one_batch() -> None:
    stream = Stream({"group.initial.rebalance.delay.ms": 100})
    stream.batch(0, join("a"), join("b"), join("c"))
    stream.batch(100)
    answered = stream.batch(200)
    assert codes(answered) == {"a": 0, "b": 0, "c": 0}
    output = stream.batch(200 + SESSION_MS)
    names = [event.event for event in output.events]
    assert names.count("member_expired") == 3
    assert stream.group.state is GroupState.EMPTY
    (record,) = output.records
    assert (record.reason or "").startswith("group emptied")


def test_long_overdue_timers_are_held_back_for_one_batch() -> None:
    stream = Stream(silence_tolerance_ms=2000)
    member_id = stream.stable()
    late = SESSION_MS + 2001
    assert stream.batch(late).events == []
    assert list(stream.group.members) == [member_id]
    output = stream.batch(late + 100)
    assert "member_expired" in [event.event for event in output.events]


def test_a_heartbeat_that_was_waiting_keeps_its_member() -> None:
    stream = Stream(silence_tolerance_ms=2000)
    member_id = stream.stable()
    late = SESSION_MS + 2001
    stream.batch(late)
    assert codes(stream.batch(late + 100, heartbeat("waited", member_id))) == {"waited": 0}
    assert stream.deadline == late + 100 + SESSION_MS


def test_timers_a_little_late_are_not_held_back() -> None:
    stream = Stream(silence_tolerance_ms=2000)
    stream.stable()
    output = stream.batch(SESSION_MS + 2000)
    assert "member_expired" in [event.event for event in output.events]


def test_after_a_silence_timers_are_held_back_anew() -> None:
    stream = Stream(silence_tolerance_ms=2000)
    member_id = stream.stable()
    first = SESSION_MS + 5000
    stream.batch(first)
    stream.batch(first + 100, heartbeat("waited", member_id))
    second = first + 100 + SESSION_MS + 5000
    assert stream.batch(second).events == []
    assert "member_expired" in [e.event for e in stream.batch(second + 1).events]


# --- restarts -------------------------------------------------------------------------------------


def test_after_a_restart_sessions_start_afresh() -> None:
    stream = Stream()
    member_id = stream.stable()
    stream.restart()
    now = SESSION_MS + 600
    assert stream.batch(now).events == []
    assert list(stream.group.members) == [member_id]
    assert stream.deadline == now + SESSION_MS
    assert "member_expired" in [e.event for e in stream.batch(stream.deadline).events]


def test_a_restart_counts_once() -> None:
    stream = Stream()
    stream.stable()
    stream.restart()
    stream.batch(6000)
    assert stream.deadline == 6000 + SESSION_MS
    stream.batch(7000)
    assert stream.deadline == 6000 + SESSION_MS


def test_a_state_of_an_earlier_release_is_taken_over_as_after_a_restart() -> None:
    stream = Stream(claims={partition_for(GROUP_ID, 50): 7})
    member_id = stream.stable()
    stream.batch(0, commit("c", 5, member_id, 1))
    *fields, _claim_epoch, _start_epoch = msgspec.msgpack.decode(stream.state[1:])
    stream.state = stream.state[:1] + msgspec.msgpack.encode(fields)
    stream.restart()
    stream.batch(6000, heartbeat("h", member_id, 1))
    assert committed(stream.group) == 5
    assert stream.deadline == 6000 + SESSION_MS


def test_a_first_join_that_waits_outlives_a_restart() -> None:
    stream = Stream()
    stream.batch(0, join("a", rebalance_timeout_ms=5 * MINUTE))
    leader = next(iter(stream.group.members))
    stream.batch(0, sync("s", leader))
    stream.batch(1000, join("b", rebalance_timeout_ms=5 * MINUTE))
    stream.restart()
    now = 2000
    for index in range(6):
        now += SESSION_MS - 1000
        stream.batch(now, heartbeat(f"h{index}", leader))
    output = stream.batch(now + 1, join("a2", leader, rebalance_timeout_ms=5 * MINUTE))
    assert codes(output) == {"a2": 0, "b": 0}


def test_an_id_that_was_given_out_outlives_a_restart() -> None:
    stream = Stream()
    stream.batch(0, join("first", version=4))
    (member_id,) = stream.group.pending_joins
    stream.restart()
    assert codes(stream.batch(SESSION_MS + 600, join("second", member_id, version=4))) == {
        "second": 0
    }


# --- clocks ---------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_loses_nothing_and_answers_everything() -> None:
    stream = Stream(claims={partition_for(GROUP_ID, 50): 3}, start_epoch=2)
    member_id = stream.stable(MINUTE)
    assert codes(stream.batch(MINUTE + 1, commit("c1", 5, member_id, 1))) == {"c1": 0}
    assert codes(stream.batch(5000, commit("c2", 6, member_id, 1))) == {"c2": 0}
    assert committed(stream.group) == 6
    assert codes(stream.batch(5001, heartbeat("h", member_id, 1))) == {"h": 0}


def test_timers_are_set_back_with_the_clock() -> None:
    stream = Stream()
    stream.stable(10 * MINUTE)
    stream.batch(10 * MINUTE + 4000, event("d", "describe_groups", {}))
    assert stream.deadline == 10 * MINUTE + SESSION_MS
    # The clock is set back by more than nine minutes, and some time has passed.
    stream.batch(MINUTE, event("e", "describe_groups", {}))
    assert stream.deadline == MINUTE + SESSION_MS - 4000
    assert "member_expired" in [e.event for e in stream.batch(stream.deadline).events]


def test_a_rebalance_does_not_wait_for_a_clock_that_was_set_back() -> None:
    stream = Stream({"group.initial.rebalance.delay.ms": 3000})
    stream.batch(10 * MINUTE, join("a"))
    stream.batch(MINUTE, join("b"))
    assert stream.deadline is not None
    assert stream.deadline <= MINUTE + 6000


# --- the same again -------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes() -> None:
    def run() -> list[bytes]:
        stream = Stream()
        member_id = stream.stable()
        batches = [
            (1, [join("x", version=9), join("y"), commit("c", 1, member_id, 1)]),
            (2, [heartbeat("h", member_id), "{", event("m", "what", {})]),
            (SESSION_MS + 5, [join("z", member_id)]),
            (3 * SESSION_MS, []),
            (3 * SESSION_MS + 1, []),
            (CHECK * 2, []),
        ]
        seen = []
        for now, events in batches:
            output = stream.batch(now, *events)
            seen += [stream.state or b"", msgspec.msgpack.encode(output)]
        return seen

    assert run() == run()


def test_member_ids_come_from_the_request() -> None:
    stream = Stream()
    (response,) = stream.batch(0, join("a", version=9)).responses
    assert response.join_group is not None
    assert response.join_group.member_id == f"client-{new_member_uuid('a')}"
    assert new_member_uuid("a") != new_member_uuid("b")


# --- retained state, and the next call of the group -----------------------------------------------


def test_a_quiet_batch_says_nothing() -> None:
    stream = Stream()
    stream.stable()
    result = BatchMachine(stream.settings).process(GROUP_ID, stream.state, [], 1)
    assert result.output is None


def test_nothing_is_kept_of_a_group_that_was_never_there() -> None:
    stream = Stream(dedup_window_ms=1000)
    stream.batch(0, heartbeat("h", "stranger"))
    # Except during the window in which the request may be repeated.
    assert stream.deadline == 1000
    assert stream.state is not None
    stream.batch(1000)
    assert (stream.state, stream.deadline) == (None, None)


def test_nothing_is_kept_of_a_group_that_was_deleted() -> None:
    stream = Stream(dedup_window_ms=1000)
    stream.batch(0, commit("c", 1))
    stream.batch(5, event("d", "delete_groups", {}))
    assert stream.snapshot.group is None
    assert stream.deadline == 1005
    stream.batch(1005)
    assert stream.state is None


def test_a_group_of_a_commit_that_stored_nothing_goes_at_the_next_cleanup() -> None:
    stream = Stream({"offset.metadata.max.bytes": 0}, dedup_window_ms=1000)
    text = commit("c", 1).replace(
        '"committed_offset"', '"committed_metadata": "x", "committed_offset"'
    )
    assert codes(stream.batch(0, text)) == {"c": ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert stream.deadline == CHECK
    output = stream.batch(CHECK)
    assert (output.records, stream.state) == ([], None)


def test_offsets_are_looked_through_one_interval_after_a_change() -> None:
    stream = Stream({"offsets.retention.minutes": 1})
    stream.batch(7, commit("c", 1))
    assert stream.deadline == 7 + CHECK
    stream.batch(CHECK, commit("d", 2))
    assert stream.deadline == 7 + CHECK
    output = stream.batch(7 + CHECK)
    assert output.records == []
    # The second offset is less than a minute old: the next run is one interval away.
    assert stream.deadline == 7 + 2 * CHECK
    output = stream.batch(7 + 2 * CHECK)
    assert [record.reason for record in output.records] == ["offsets expired"]
    assert stream.state is None


def test_the_next_look_is_when_something_may_have_expired() -> None:
    stream = Stream({"offsets.retention.minutes": 600})
    stream.batch(0, commit("c", 1))
    stream.batch(CHECK)
    assert stream.deadline == 600 * MINUTE


def test_an_emptied_group_without_offsets_is_buried_by_the_next_look() -> None:
    stream = Stream()
    member_id = stream.stable()
    stream.batch(1, event("leave", "leave_group", {"members": [{"member_id": member_id}]}))
    assert stream.group.state is GroupState.EMPTY
    assert stream.deadline == CHECK
    output = stream.batch(CHECK)
    assert [event.event for event in output.events] == ["transition", "group_deleted"]
    assert [record.group_metadata for record in output.records] == [None]
    assert (stream.state, stream.deadline) == (None, None)


def test_a_group_whose_tombstone_the_log_does_not_take_is_looked_at_again() -> None:
    stream = Stream()
    stream.batch(0, join("a", protocols=[]))
    stream.settings = msgspec.structs.replace(
        stream.settings, config=parse_config({"max.message.bytes": 1})
    )
    assert stream.batch(CHECK).records == []
    assert stream.group.state is GroupState.EMPTY
    assert stream.deadline == 2 * CHECK


# --- a group that was taken over ------------------------------------------------------------------

DAY = 24 * 60 * MINUTE


def run_until(stream: Stream, end: int) -> list[tuple[int, GroupOutput]]:
    """Let time pass; the group is called when it is due, and at no other time."""
    said: list[tuple[int, GroupOutput]] = []
    while stream.deadline is not None and stream.deadline <= end:
        at = stream.deadline
        said.append((at, stream.batch(at)))
    return said


def taken_over(records: list[CoordinatorRecord], now: int, **settings: Any) -> Stream:
    """Return the group at another coordinator, which loaded it from these records."""
    stream = Stream(settings)
    stream.batch(now, load_event(records))
    return stream


@pytest.mark.parametrize("hours", [1, 7 * 24 - 1, 8 * 24])
def test_the_offsets_of_a_group_that_is_idle_after_a_take_over_expire(hours: int) -> None:
    stream = Stream()
    records = stream.batch(0, commit("c", 1)).records
    loaded_at = hours * 60 * MINUTE
    stream = taken_over(records, loaded_at)
    said = run_until(stream, 10 * DAY)
    expired = [(at, r.reason) for at, output in said for r in output.records]
    assert expired == [(max(7 * DAY, loaded_at + CHECK), "offsets expired")]
    assert stream.state is None


def test_a_group_that_was_taken_over_is_not_looked_through_in_vain() -> None:
    stream = Stream()
    records = stream.batch(0, commit("c", 1)).records
    assert taken_over(records, 5).deadline == 7 * DAY


def test_a_group_that_was_taken_over_empty_is_buried() -> None:
    stream = Stream()
    records = stream.batch(0, join("a", protocols=[])).records
    said = run_until(taken_over(records, 5), DAY)
    assert [(at, [r.group_metadata for r in output.records]) for at, output in said] == [
        (5 + CHECK, [None])
    ]


def test_offsets_of_a_group_with_members_wait_for_them_after_a_take_over_too() -> None:
    stream = Stream()
    records = stream.batch(0, join("j")).records
    member_id = next(iter(stream.group.members))
    records += stream.batch(0, sync("s", member_id), commit("c", 1, member_id, 1)).records
    said = run_until(taken_over(records, 5), 10 * DAY)
    (emptied, _), *expired = [(at, r.reason) for at, output in said for r in output.records]
    assert emptied == 5 + SESSION_MS, "nobody sent a heartbeat"
    assert expired[0] == (emptied + 7 * DAY, "offsets expired")


# --- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_comes_back_the_same() -> None:
    stream = Stream({"group.initial.rebalance.delay.ms": 100})
    stream.batch(0, join("a"), join("b", version=9), join("c", group_instance_id="i"))
    stream.batch(1, commit("d", 1))
    snapshot = decode(stream.state)
    assert snapshot.group is not None
    assert encode(snapshot) == stream.state
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"\x01rest", "version 1, this release reads version 2"),
        (b"", "version None"),
        (b"\x02\xc1", "cannot be read"),
        (b"\x02", "cannot be read"),
    ],
)
def test_a_state_that_is_damaged_says_what_is_wrong(state: bytes, message: str) -> None:
    with pytest.raises(UnknownSnapshot, match=message):
        BatchMachine(BatchSettings()).process(GROUP_ID, state, [], 0)


@pytest.mark.parametrize("state", [b"\x07", b"\x02\xc1"])
def test_the_way_out_is_named(state: bytes) -> None:
    with pytest.raises(UnknownSnapshot, match="delete the node's folder in _checkpoints"):
        decode(state)
