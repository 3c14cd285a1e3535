"""A coordinator is killed between record and response; the next one answers by the records."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.control import recorded_event
from group_coordinator.coordinator.group.coordinator import HANDLERS
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.records import CoordinatorRecord
from tests.context import subscription
from tests.coordinator.test_authorization import acl
from tests.coordinator.test_batch import (
    Stream,
    codes,
    commit,
    committed,
    event,
    heartbeat,
    join,
    load_event,
    ruin,
    sync,
)

SECOND = 1_000


class Log:
    """Groups with changing coordinators; only the offsets topic passes from one to the next."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.records: list[CoordinatorRecord] = []
        self.stream = Stream(**fields)

    def batch(self, now: int, *events: str) -> GroupOutput:
        """Decide a batch, and store its records."""
        output = self.stream.batch(now, *events)
        for record in output.records:
            placed = msgspec.structs.replace(record, log_offset=len(self.records))
            self.records.append(placed)
        return output

    def take_over(self, now: int, *waiting: str) -> GroupOutput:
        """Decide another coordinator's first batch: it loads the group, and these requests wait."""
        self.stream = Stream(**self.fields)
        newest = {(r.record_type, r.topic, r.topic_partition): r for r in self.records}
        load = load_event(list(newest.values()))
        return self.batch(now, load, *map(self.with_records, waiting))

    def with_records(self, text: str) -> str:
        """Return a waiting request, with its records if they were written."""
        request_id = msgspec.json.decode(text)["request_id"]
        mine = [msgspec.json.encode(r) for r in self.records if r.request_id == request_id]
        return recorded_event(text, b",".join(mine).decode()) if mine else text

    def stable(self, *instances: str | None, version: int = 3) -> list[str]:
        """Join and sync members, the first as leader; return their ids."""
        for number, instance in enumerate(instances):
            self.batch(0, join(f"j{number}", version=version, group_instance_id=instance))
            members = list(self.stream.group.members)
            for place, member_id in enumerate(members[:-1]):
                self.batch(0, join(f"j{number}-{place}", member_id, version))
        members = list(self.stream.group.members)
        generation = self.stream.group.generation_id
        for number, member_id in enumerate(members):
            self.batch(0, sync(f"s{number}", member_id, generation))
        assert self.stream.group.state is GroupState.STABLE
        return members


def answers(output: GroupOutput) -> dict[str, Response]:
    """Return the responses by request, without their time."""
    assert len(codes(output)) == len(output.responses)
    return {r.request_id: msgspec.structs.replace(r, responded_at=None) for r in output.responses}


def unanswered(log: Log, *requests: str) -> None:
    """Decide the requests, and kill the coordinator before it answers; then kill the next one."""
    before = log.batch(SECOND, *requests)
    assert before.records
    known = list(log.records)
    for again in (2 * SECOND, 3 * SECOND):
        after = log.take_over(again, *requests)
        assert answers(after) == answers(before)
        assert after.records == []
    assert log.records == known


def offset_delete(request_id: str, *partitions: int, topic: str = "foo") -> str:
    topics = [{"name": topic, "partitions": list(partitions)}]
    return event(request_id, "offset_delete", {"topics": topics})


def leave(request_id: str, *members: str, version: int | None = None) -> str:
    named = [{"member_id": member} for member in members]
    return event(request_id, "leave_group", {"members": named}, api_version=version)


def delete(request_id: str) -> str:
    return event(request_id, "delete_groups", {})


def offset_in(log: Log) -> int:
    return committed(log.stream.group)


# --- commits --------------------------------------------------------------------------------------


def test_a_commit_is_recorded_once_and_answered() -> None:
    log = Log()
    unanswered(log, commit("c", 5))
    assert offset_in(log) == 5


def test_offsets_do_not_step_back_whatever_the_order_in_which_commits_wait() -> None:
    log = Log()
    requests = [commit("a", 5), commit("b", 6)]
    log.batch(0, *requests)
    after = log.take_over(SECOND, *reversed(requests))
    assert codes(after) == {"a": 0, "b": 0}
    assert (after.records, offset_in(log)) == ([], 6)


def test_a_commit_of_a_generation_that_is_over_by_now_was_taken() -> None:
    log = Log()
    (member,) = log.stable(None)
    unanswered(log, commit("c", 5, member, 1), leave("l", member))


def test_of_a_commit_each_partition_is_answered_as_it_was() -> None:
    config = {"settings": {"offset.metadata.max.bytes": 2}}
    log = Log(**config)
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "long"},
        {"partition_index": 1, "committed_offset": 6},
        {"partition_index": -1, "committed_offset": 7},
        {"partition_index": 1, "committed_offset": 8},
    ]
    text = event("c", "offset_commit", {"topics": [{"name": "foo", "partitions": partitions}]})
    unanswered(log, text)
    after = log.take_over(9 * SECOND, text)
    (response,) = after.responses
    assert response.offset_commit is not None
    assert [p.error_code for t in response.offset_commit.topics for p in t.partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_of_a_commit_what_has_no_record_and_would_be_taken_now_is_to_be_asked_again() -> None:
    log = Log(settings={"offset.metadata.max.bytes": 0})
    text = (
        '{"request_id":"c","group_id":"groupId","api":"offset_commit","offset_commit":{"topics":'
        '[{"name":"foo","partitions":[{"partition_index":0,"committed_offset":1},'
        '{"partition_index":1,"committed_offset":2,"committed_metadata":"x"}]}]}}'
    )
    log.batch(0, text)
    log.fields = {}
    (response,) = log.take_over(SECOND, text).responses
    assert response.offset_commit is not None
    (topic,) = response.offset_commit.topics
    again = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [p.error_code for p in topic.partitions] == [ErrorCode.NONE, again]
    assert list(log.stream.group.offsets["foo"]) == [0]


def test_a_record_of_another_offset_is_that_of_another_request() -> None:
    """Its id was used again, long after."""
    log = Log()
    log.batch(0, commit("c", 5))
    after = log.take_over(SECOND, commit("c", 9))
    assert codes(after) == {"c": 0}
    assert offset_in(log) == 9


def test_a_commit_that_was_to_be_decided_in_time_was() -> None:
    log = Log()
    text = commit("c", 5).replace('"api"', f'"deadline": {SECOND}, "api"', 1)
    unanswered(log, text)


def test_what_stands_is_answered_whatever_the_room_to_remember_requests() -> None:
    log = Log(dedup_max_ids=1)
    log.batch(0, commit("a", 1))
    log.stream.batch(70 * SECOND)
    log.batch(70 * SECOND, commit("b", 2))
    after = log.take_over(71 * SECOND, commit("a", 1), commit("b", 2), commit("c", 3))
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(after) == {"a": 0, "b": 0, "c": refused}


def test_what_stands_and_comes_again_is_answered_once() -> None:
    log = Log()
    log.batch(0, commit("a", 1), commit("b", 2))
    twice = [commit("a", 1), commit("a", 1)]
    assert codes(log.take_over(SECOND, *twice)) == {"a": 0}
    assert log.stream.batch(2 * SECOND, commit("a", 1)).responses == []


def test_what_waits_may_come_in_a_later_batch_than_what_loads_its_group() -> None:
    log = Log()
    requests = [commit("a", 1), commit("b", 2)]
    log.batch(0, *requests)
    log.take_over(SECOND)
    after = log.batch(2 * SECOND, *map(log.with_records, requests))
    assert codes(after) == {"a": 0, "b": 0}
    assert after.records == []


# --- deletions ------------------------------------------------------------------------------------


def test_a_group_that_was_deleted_was_found() -> None:
    log = Log()
    log.batch(0, commit("c", 5))
    unanswered(log, delete("d"))
    assert log.stream.snapshot.group is None


def test_a_group_that_came_again_is_not_deleted_a_second_time() -> None:
    log = Log()
    log.batch(0, commit("c", 5))
    unanswered(log, delete("d"), commit("e", 7))
    assert offset_in(log) == 7


@pytest.mark.parametrize("more", [[], [commit("e", 7)], [commit("e", 7), delete("d")]])
def test_offsets_that_were_deleted_are_deleted_once(more: list[str]) -> None:
    log = Log()
    log.batch(0, commit("c", 5))
    unanswered(log, offset_delete("o", 0, 1, -1), *more)


def test_of_deleted_offsets_what_would_be_deleted_now_is_to_be_asked_again() -> None:
    log = Log()
    log.batch(0, commit("c", 5), commit("d", 6).replace('"foo"', '"bar"'))
    log.batch(SECOND, offset_delete("o", 0))
    text = '{"request_id":"o","group_id":"groupId","api":"offset_delete","offset_delete":' + (
        '{"topics":[{"name":"foo","partitions":[0]},{"name":"bar","partitions":[0]}]}}'
    )
    (response,) = log.take_over(2 * SECOND, text).responses
    assert response.offset_delete is not None
    assert [t.partitions[0].error_code for t in response.offset_delete.topics] == [
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    assert list(log.stream.group.offsets.topics) == ["bar"]


@pytest.mark.parametrize("api", ["offset_commit", "offset_delete"])
def test_a_topic_that_was_not_allowed_is_answered_so_again(api: str) -> None:
    allowed = (acl("User:u", "ALL", "groupId", "GROUP"), acl("User:u", "READ", "foo"))
    log = Log(acls=allowed)
    log.batch(0, commit("c", 5).replace('"api"', '"principal": "User:u", "api"', 1))
    offsets = [{"partition_index": 0, "committed_offset": 6}]
    partitions = offsets if api == "offset_commit" else [0]
    topics = [{"name": name, "partitions": partitions} for name in ("foo", "bar")]
    unanswered(log, event("r", api, {"topics": topics}, principal="User:u"))


def test_offsets_of_a_topic_that_is_read_are_not_deleted_and_answered_so_again() -> None:
    log = Log()
    metadata = base64.b64encode(subscription("bar")).decode()
    log.batch(0, join("j", protocols=[{"name": "range", "metadata": metadata}]))
    (member,) = log.stream.group.members
    log.batch(0, sync("s", member), commit("c", 5, member, 1))
    topics = [{"name": name, "partitions": [0]} for name in ("foo", "bar")]
    unanswered(log, event("o", "offset_delete", {"topics": topics}))


# --- members --------------------------------------------------------------------------------------


def test_an_assignment_is_recorded_once_and_answered() -> None:
    log = Log()
    log.batch(0, join("j"))
    (member,) = log.stream.group.members
    body = {"generation_id": 1, "member_id": member}
    body["assignments"] = [{"member_id": member, "assignment": "AQID"}]
    text = event("s", "sync_group", body)
    unanswered(log, text, heartbeat("h", member))
    assert log.stream.group.members[member].assignment == b"\1\2\3"


def test_an_assignment_is_answered_though_its_group_is_empty_by_now() -> None:
    log = Log()
    log.batch(0, join("j"))
    (member,) = log.stream.group.members
    unanswered(log, sync("s", member), leave("l", member))


@pytest.mark.parametrize("version", [2, 5])
def test_the_last_member_has_left(version: int) -> None:
    log = Log()
    (member,) = log.stable(None)
    unanswered(log, leave("l", member, version=version))


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("instance", ["a", "b"])
def test_a_static_member_that_came_back_has_the_id_that_it_was_given(
    version: int, instance: str
) -> None:
    """Below version 9 a leader gets its old id, so that it does not assign."""
    log = Log()
    log.stable("a", "b")
    unanswered(log, join("r", version=version, group_instance_id=instance))


def test_a_static_member_that_came_back_twice_is_answered_twice() -> None:
    log = Log()
    log.stable("a")
    first, second = (join(name, version=9, group_instance_id="a") for name in ("r1", "r2"))
    unanswered(log, first, second)


def test_a_join_whose_record_made_the_group_goes_on_waiting() -> None:
    log = Log(settings={"group.initial.rebalance.delay.ms": 3_000})
    log.batch(0, join("j"))
    after = log.take_over(SECOND, join("j"))
    assert (after.responses, after.records) == ([], [])
    assert codes(log.stream.batch(4 * SECOND)) == {"j": 0}


def test_a_group_that_was_made_and_deleted_is_not_recorded_again() -> None:
    log = Log()
    unanswered(log, join("j", version=9), delete("d"))
    (pending,) = log.stream.group.pending_joins
    assert codes(log.batch(4 * SECOND, join("again", pending, 9))) == {"again": 0}


# --- other cases ----------------------------------------------------------------------------------


def decided(log: Log, text: str, with_records: bool) -> dict[str, Response]:
    stream = Stream()
    waits = log.with_records(text) if with_records else text
    return answers(stream.batch(SECOND, load_event(log.records), waits))


def test_records_of_another_kind_are_no_answer() -> None:
    """For example, an id that was used again, long after."""
    commits, syncs = Log(), Log()
    commits.batch(0, commit("x", 5))
    syncs.batch(0, join("j"))
    (member,) = syncs.stream.group.members
    syncs.batch(0, sync("x", member))
    for log, text in [
        (commits, delete("x")),
        (commits, offset_delete("x", 0)),
        (commits, leave("x", "m")),
        (commits, sync("x", "m")),
        (commits, join("x")),
        (syncs, leave("x", "m")),
        (syncs, delete("x")),
        (syncs, commit("x", 5)),
        (syncs, sync("x", member, 2)),
    ]:
        assert decided(log, text, True) == decided(log, text, False)


def test_a_handler_that_fails_undoes_no_answer_by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    requests = [commit("c", 5), join("j", version=9)]
    before = log.batch(0, *requests)
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    after = log.take_over(SECOND, *requests, heartbeat("bad", "x"))
    assert answers(after).pop("bad").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answers(after).items() > answers(before).items()
    assert after.records == []


def test_a_handler_that_fails_has_no_group_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    requests = [join("j", version=9), delete("d")]
    log.batch(0, *requests)
    monkeypatch.setitem(HANDLERS, "heartbeat", ruin)
    after = log.take_over(SECOND, *requests, heartbeat("bad", "x"))
    assert after.records == []
