"""A topic is deleted from the catalogue, with its offsets of all groups.

Source: Kafka's GroupCoordinatorService.onPartitionsDeleted.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.control import WAKE_EVENT
from group_coordinator.coordinator.group.group_snapshot import decode, encode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.schemas.records import OFFSET_COMMIT, CoordinatorRecord
from group_coordinator.schemas.rows import Catalogue
from tests.context import GROUP_ID, KAFKA_TEST_SETTINGS

CONFIG = parse_config({**KAFKA_TEST_SETTINGS, "group.initial.rebalance.delay.ms": 0})
NOTHING = GroupOutput([], [], [], [])
BOTH = Catalogue({"foo": 3, "bar": 3})


class Stream:
    """A group's batches, each with the catalogue that is valid then."""

    def __init__(self, catalogue: Catalogue | None = BOTH) -> None:
        self.machine = BatchMachine(BatchSettings(config=CONFIG))
        self.machine.set_topics(catalogue)
        self.state: bytes | None = None
        self.now = 0

    def batch(self, *events: str) -> GroupOutput:
        self.now += 1
        result = self.machine.process(GROUP_ID, self.state, list(events), self.now)
        self.state = result.state
        return result.output or NOTHING

    @property
    def group(self) -> ClassicGroup:
        group = decode(self.state).group
        assert group is not None
        return group

    @property
    def committed(self) -> dict[str, list[int]]:
        return {topic: sorted(partitions) for topic, partitions in self.group.offsets.items()}


def event(request_id: str, api: str, body: Any, **fields: Any) -> str:
    whole = {"request_id": request_id, "group_id": GROUP_ID, "api": api, api: body, **fields}
    return json.dumps(whole)


def commit(request_id: str, *places: tuple[str, int], **member: Any) -> str:
    partitions: dict[str, list[dict[str, int]]] = {}
    for topic, partition in places:
        one = {"partition_index": partition, "committed_offset": 7}
        partitions.setdefault(topic, []).append(one)
    topics = [{"name": name, "partitions": each} for name, each in partitions.items()]
    return event(request_id, "offset_commit", {"topics": topics, **member})


def tombstones(output: GroupOutput) -> list[tuple[str | None, int | None]]:
    assert all(r.record_type == OFFSET_COMMIT and not r.offset_commit for r in output.records)
    assert {record.reason for record in output.records} <= {"topic deleted"}
    return [(record.topic, record.topic_partition) for record in output.records]


def test_the_offsets_of_a_deleted_topic_go_with_tombstones() -> None:
    stream = Stream()
    stream.batch(commit("c", ("foo", 0), ("foo", 2), ("bar", 1)))
    stream.machine.set_topics(Catalogue({"bar": 3}, {"foo": 100}))
    output = stream.batch(WAKE_EVENT)
    assert tombstones(output) == [("foo", 0), ("foo", 2)]
    (told,) = output.events
    assert (told.event, told.reason) == (
        "offsets_deleted",
        "2 offsets of deleted topics: foo-0, foo-2",
    )
    assert stream.committed == {"bar": [1]}


def test_a_deletion_is_carried_out_once() -> None:
    stream = Stream()
    stream.batch(commit("c", ("foo", 0), ("bar", 1)))
    stream.machine.set_topics(Catalogue({"bar": 3}, {"foo": 100}))
    stream.batch()
    assert stream.batch() == NOTHING


def test_the_requests_of_the_batch_come_after_it() -> None:
    stream = Stream()
    stream.batch(commit("c", ("foo", 0)))
    stream.machine.set_topics(Catalogue({"bar": 3}, {"foo": 100}))
    output = stream.batch(event("f", "offset_fetch", {"topics": None}))
    assert output.responses[0].offset_fetch is not None
    assert output.responses[0].offset_fetch.topics == ()


def test_a_topic_that_was_created_again_begins_without_the_offsets_of_the_old_one() -> None:
    """Whether or not the group was decided in between."""
    stream = Stream()
    stream.batch(commit("c", ("foo", 0)))
    stream.machine.set_topics(Catalogue({"foo": 1, "bar": 3}, {"foo": 100}))
    first, second = stream.batch(commit("d", ("foo", 0))).records
    assert (first.offset_commit, first.reason) == (None, "topic deleted")
    assert (second.request_id, stream.committed) == ("d", {"foo": [0]})


def test_members_that_consume_the_topic_do_not_keep_its_offsets() -> None:
    stream = Stream()
    body = {
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": "AAAAAAABAANmb28AAAAA"}],
    }
    stream.batch(event("j", "join_group", body, api_version=3))
    (member_id,) = stream.group.members
    sync = {"generation_id": 1, "member_id": member_id, "assignments": []}
    stream.batch(event("s", "sync_group", sync))
    stream.batch(commit("c", ("foo", 0), member_id=member_id, generation_id=1))
    assert stream.committed == {"foo": [0]}
    assert stream.group.subscribed_topics == ["foo"]
    stream.machine.set_topics(Catalogue({"bar": 3}, {"foo": 20_000}))
    assert tombstones(stream.batch()) == [("foo", 0)]


def test_a_topic_that_is_not_in_a_new_catalogue_was_not_deleted() -> None:
    stream = Stream(None)
    stream.batch(commit("c", ("foo", 0)))
    stream.machine.set_topics(Catalogue({"bar": 3}))
    assert stream.batch() == NOTHING
    assert stream.committed == {"foo": [0]}


def loaded(topic: str) -> str:
    value = {"offset": 7, "leader_epoch": -1, "metadata": "", "commit_timestamp": 5}
    record = CoordinatorRecord(1, OFFSET_COMMIT, GROUP_ID, 5, 0, topic, 0)
    row = msgspec.to_builtins(record) | {"offset_commit": value}
    return json.dumps({"control": "load", "records": [row]}, separators=(",", ":"))


def test_a_loaded_group_has_no_offsets_of_a_topic_that_is_deleted() -> None:
    stream = Stream(Catalogue({"bar": 3}, {"foo": 100}))
    assert tombstones(stream.batch(loaded("foo"))) == [("foo", 0)]


def test_a_loaded_group_keeps_offsets_of_a_topic_that_was_created_again() -> None:
    """They may belong to the new topic: the log does not record the catalogue of a commit."""
    stream = Stream(Catalogue({"foo": 1, "bar": 3}, {"foo": 100}))
    assert tombstones(stream.batch(loaded("foo"))) == []
    assert stream.committed == {"foo": [0]}


def test_a_state_of_the_last_release_keeps_offsets_of_a_topic_that_was_created_again() -> None:
    stream = Stream()
    stream.batch(commit("c", ("foo", 0), ("bar", 1)))
    snapshot = decode(stream.state)
    snapshot.topics_seen_at = None
    stream.state = encode(snapshot)
    stream.machine.set_topics(Catalogue({"foo": 1}, {"foo": 100, "bar": 101}))
    assert tombstones(stream.batch()) == [("bar", 1)]


def test_a_group_of_which_nothing_is_left_goes_at_the_next_cleanup() -> None:
    stream = Stream()
    stream.batch(commit("c", ("foo", 0)))
    stream.machine.set_topics(Catalogue({"bar": 3}, {"foo": 100}))
    stream.batch()
    stream.now += 2 * CONFIG.offsets_retention_check_interval_ms
    stream.batch()
    assert decode(stream.state).group is None
