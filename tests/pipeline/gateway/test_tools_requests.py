"""The requests of Kafka 4.1's command line tools, in the versions and forms that they have.

Read in the sources of ConsumerGroupCommand, TopicCommand, GetOffsetShell and KafkaAdminClient. The
answers are Kafka's, errors included: by them the tools print what they print against a broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.gateway import request_context
from group_coordinator.pipeline.gateway.apis import groups
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.request_context import ADMIN_TIMEOUT_MS
from group_coordinator.pipeline.monitor import catalog
from group_coordinator.pipeline.monitor.table_rows import files_query
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline import small
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import gateway

NOBODY = -1
NO_EPOCH = -1


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with connected(broker) as client:
        yield client


def commit(client: Client, group: str, offsets: dict[int, int], topic: str = "orders") -> list[int]:
    answer = client.ask(commit_request(group, offsets, topic), OffsetCommitResponse, 9)
    return [each.error_code for each in answer.topics[0].partitions]


def commit_request(
    group: str, offsets: dict[int, int], topic: str = "orders"
) -> OffsetCommitRequest:
    """As `--reset-offsets --execute` does: without a member, and without a generation."""
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        of_topic.OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=NO_EPOCH,
            committed_metadata="",
        )
        for number, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=NOBODY,
        member_id="",
        group_instance_id=None,
        topics=[of_topic(name=topic, partitions=partitions)],
    )


def committed(client: Client, *groups: str) -> list[dict[tuple[str, int], int]]:
    """As `--describe` does: everything that each group has committed."""
    of_group = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = [of_group(group_id=each, member_id=None, member_epoch=-1) for each in groups]
    for each in wanted:
        each.topics = None
    request = OffsetFetchRequest(groups=wanted, require_stable=False)
    answer = client.ask(request, OffsetFetchResponse, 9)
    assert [each.group_id for each in answer.groups] == list(groups)
    return [
        {
            (topic.name, each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }
        for group in answer.groups
    ]


def described(client: Client, group: str) -> Any:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    (found,) = client.ask(request, DescribeGroupsResponse, 6).groups
    return found


def listed(client: Client, states: list[str], types: list[str]) -> dict[str, tuple[str, str]]:
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    answer = client.ask(request, ListGroupsResponse, 5)
    return {each.group_id: (each.group_state, each.group_type) for each in answer.groups}


def offsets_deleted(client: Client, group: str, wanted: dict[str, list[int]]) -> tuple[int, Any]:
    answer = client.ask(delete_request(group, wanted), OffsetDeleteResponse, 0)
    codes = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    return answer.error_code, codes


def delete_request(group: str, wanted: dict[str, list[int]]) -> OffsetDeleteRequest:
    of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        of_topic(
            name=name,
            partitions=[
                of_topic.OffsetDeleteRequestPartition(partition_index=each) for each in numbers
            ],
        )
        for name, numbers in wanted.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def test_groups_are_listed_from_the_two_tables_that_tell_of_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(client, "listed", {0: 1})
    opened: list[str] = []

    def counted(ask: Any, uri: str, rows: Any) -> str | None:
        opened.append(rows.name)
        return files_query(ask, uri, rows)

    monkeypatch.setattr(catalog, "files_query", counted)
    assert listed(client, [], [])["listed"] == ("Empty", "classic")
    assert sorted(opened) == ["group_events", "offsets_topic"]


def joined(client: Client, group: str) -> str:
    """The id of a member that leads a group and has all of `orders`."""
    metadata = ConsumerProtocolSubscription(
        topics=["orders"], user_data=b"", owned_partitions=[]
    ).encode(version=0)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        reason="",
    )
    join.member_id = client.ask(join, JoinGroupResponse, 9).member_id
    answer = client.ask(join, JoinGroupResponse, 9)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    assert client.ask(sync, SyncGroupResponse, 5).error_code == 0
    return str(answer.member_id)


def test_a_reset_is_committed_for_a_group_that_nobody_has_created(client: Client) -> None:
    assert commit(client, "reset", {0: 4, 1: 5}) == [0, 0]
    assert commit(client, "reset", {9: 1}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(client, "reset", {0: 1}, "nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(client, "reset", "nobody") == [{("orders", 0): 4, ("orders", 1): 5}, {}]
    found = described(client, "reset")
    assert (found.error_code, found.group_state, found.members) == (0, "Empty", [])


@pytest.mark.slow
def test_groups_are_listed_by_state_and_by_type(client: Client) -> None:
    commit(client, "empty", {0: 1})
    joined(client, "stable")
    both = ["consumer", "classic"]
    assert listed(client, [], both)["empty"] == ("Empty", "classic")
    assert "stable" not in listed(client, ["Empty"], both)
    # The tool writes states as Kafka does; people write them as they like.
    assert listed(client, ["stable"], [])["stable"] == ("Stable", "classic")
    assert {"empty", "stable"} <= listed(client, ["Stable", "Empty"], ["classic"]).keys()
    assert listed(client, [], ["consumer"]) == {}


def test_a_group_that_is_not_there_is_named(client: Client) -> None:
    found = described(client, "nobody")
    assert (found.error_code, found.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group nobody not found.",
    )
    assert offsets_deleted(client, "nobody", {"orders": [0]})[0] == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_deleted_where_they_may_be(client: Client) -> None:
    commit(client, "done", {0: 4, 1: 5})
    code, partitions = offsets_deleted(client, "done", {"orders": [1, 9], "nothing": [0]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code == 0
    assert partitions == {("orders", 1): 0, ("orders", 9): unknown, ("nothing", 0): unknown}
    assert committed(client, "done") == [{("orders", 0): 4}]
    joined(client, "subscribed")
    code, partitions = offsets_deleted(client, "subscribed", {"orders": [0]})
    assert code == 0
    assert partitions == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_a_live_group_is_neither_reset_nor_deleted(client: Client) -> None:
    member = joined(client, "live")
    (found,) = described(client, "live").members
    assert (found.member_id, found.client_id, found.client_host) == (member, "raw", "/127.0.0.1")
    assert commit(client, "live", {0: 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    answer = client.ask(
        DeleteGroupsRequest(groups_names=["live", "nobody"]), DeleteGroupsResponse, 2
    )
    assert [each.error_code for each in answer.results] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


def groups_deleted(client: Client, *groups: str) -> list[int]:
    answer = client.ask(DeleteGroupsRequest(groups_names=list(groups)), DeleteGroupsResponse, 2)
    return [each.error_code for each in answer.results]


def test_what_a_coordinator_would_delete_too_late_stays(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client waits 30 s: by the clock of this coordinator 31 s pass between two decisions.

    Kafka's tools send an OffsetDelete again upon COORDINATOR_NOT_AVAILABLE, as they do a commit.
    """
    commit(client, "late", {0: 4, 1: 5})
    with monkeypatch.context() as slow:
        # The next decision is late as well, however soon it finds the request.
        much = ADMIN_TIMEOUT_MS + 1_000
        times = itertools.count(clock_ms() + much, much)
        slow.setattr(small, "clock_ms", times.__next__)
        assert groups_deleted(client, "late") == [ErrorCode.REQUEST_TIMED_OUT]
        late = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert offsets_deleted(client, "late", {"orders": [0]}) == (late, {})
        assert commit(client, "late", {0: 9}) == [late]
    assert committed(client, "late") == [{("orders", 0): 4, ("orders", 1): 5}]
    assert offsets_deleted(client, "late", {"orders": [0]}) == (0, {("orders", 0): 0})
    assert groups_deleted(client, "late") == [0]


def test_nothing_is_asked_of_a_coordinator_that_did_not_say_what_time_it_is(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that starts the next day deletes nothing: it finds no request to delete."""
    monkeypatch.setattr(groups, "ADMIN_TIMEOUT_MS", 800)
    monkeypatch.setattr(request_context, "_WRITE_S", 0)
    hasty = parse_config({"offsets.commit.timeout.ms": 800})
    with gateway(root, group=hasty) as broker, connected(broker) as client:
        assert groups_deleted(client, "g", "h") == [ErrorCode.REQUEST_TIMED_OUT] * 2
        nobody = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert offsets_deleted(client, "g", {"orders": [0]}) == (nobody, {})
    asked = open_table(root, REQUESTS).to_pyarrow_table(columns=["api"])
    assert asked.column("api").to_pylist() == ["find_coordinator"] * 3


def test_a_topic_is_created_by_the_number_of_partitions_that_the_broker_has(
    client: Client,
) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="plain", num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    (made,) = client.ask(request, CreateTopicsResponse, 7).topics
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    (again,) = client.ask(request, CreateTopicsResponse, 7).topics
    assert again.error_message == "Topic 'plain' already exists."

    def grown(name: str, count: int) -> tuple[int, str | None]:
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=count, assignments=None
        )
        asked = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
        (result,) = client.ask(asked, CreatePartitionsResponse, 3).results
        return result.error_code, result.error_message

    assert grown("plain", 3) == (0, None)
    for count, why in (
        (3, "Topic already has 3 partition(s)."),
        (2, "The topic plain currently has 3 partition(s); 2 would not be an increase."),
    ):
        assert grown("plain", count) == (ErrorCode.INVALID_PARTITIONS, why)
    assert grown("nothing", 3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        (
            "no/name",
            "'no/name' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ],
)
def test_a_name_is_refused_in_words_of_kafka(client: Client, name: str, why: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    (made,) = client.ask(request, CreateTopicsResponse, 7).topics
    assert (made.error_code, made.error_message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Topic name is invalid: {why}",
    )


@pytest.mark.parametrize(
    ("time", "offset"), [(-1, 0), (-2, 0), (-3, -1), (-4, 0), (-5, -1), (0, -1)]
)
def test_each_time_of_an_empty_partition_has_its_offset(
    client: Client, time: int, offset: int
) -> None:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = of_topic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=NO_EPOCH, timestamp=time
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[of_topic(name="orders", partitions=[wanted])],
        timeout_ms=30_000,
    )
    (topic,) = client.ask(request, ListOffsetsResponse, 10).topics
    (found,) = topic.partitions
    assert (found.error_code, found.offset) == (0, offset)


# --- topics without names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "name", "code"),
    [
        (10, "", ErrorCode.INVALID_REQUEST),
        (11, "", ErrorCode.INVALID_REQUEST),
        (12, None, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_topic_is_not_found_by_its_id(
    client: Client, version: int, name: str | None, code: ErrorCode
) -> None:
    """An answer of version 10 or 11 has no null for a name, which the answer to it had."""
    wanted = MetadataRequest.MetadataRequestTopic(topic_id=UUID(int=7), name=None)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    (found,) = client.ask(request, MetadataResponse, version).topics
    assert (found.error_code, found.name, found.topic_id) == (code, name, UUID(int=7))
