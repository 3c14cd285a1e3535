"""What a client has sent is done, though it does not wait for the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.consumer.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.raw import Client, connected, heartbeat
from tests.waiting import wait_until

WAIT_S = 20.0


def join(group: str, member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        reason="",
    )


def named(client: Client, group: str) -> str:
    """The id of a member that has not joined yet."""
    answer = client.ask(join(group), JoinGroupResponse, 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return str(answer.member_id)


def members(client: Client, group: str) -> list[str]:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    (found,) = client.ask(request, DescribeGroupsResponse, 6).groups
    return [each.member_id for each in found.members]


def commit(group: str, offset: int) -> OffsetCommitRequest:
    """A simple consumer's commit of partition 0 of the topic "orders"."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name="orders", partitions=[partition])],
    )


def committed(client: Client, group: str) -> int:
    """What the group has committed of partition 0 of the topic "orders", -1 for nothing."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=False)
    (found,) = client.ask(request, OffsetFetchResponse, 7).topics
    return int(found.partitions[0].committed_offset)


@contextmanager
def waiting_join(broker: Broker, group: str) -> Iterator[tuple[str, Client, str]]:
    """A member that stays, by its id, and the client and id of one whose join waits for it.

    Both clients are closed at the block's end.
    """
    with connected(broker) as stays:
        first = named(stays, group)
        assert stays.ask(join(group, first), JoinGroupResponse, 9).error_code == 0
        with connected(broker) as leaves:
            second = named(leaves, group)
            leaves.send(join(group, second), 9)
            # The group rebalances: the join is decided, and waits for the first member.
            wait_until(
                "the group rebalances",
                lambda: stays.ask(heartbeat(group, first), HeartbeatResponse, 4).error_code,
                WAIT_S,
            )
            yield first, leaves, second


def test_who_closes_while_its_join_waits_has_left(broker: Broker) -> None:
    """So does a console consumer that is stopped in a rebalance; a broker reads its LeaveGroup."""
    with waiting_join(broker, "left") as (first, leaves, second):
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=second, group_instance_id=None, reason="closed"
        )
        leaves.send(LeaveGroupRequest(group_id="left", members=[identity]), 5)
    with connected(broker) as asks:
        wait_until("the first is alone", lambda: members(asks, "left") == [first], WAIT_S)


def test_what_was_committed_before_closing_is_committed(broker: Broker) -> None:
    """So a consumer commits that closes at once, behind its own join that still waits."""
    with waiting_join(broker, "closes") as (_, leaves, _):
        leaves.send(commit("simple", 7), 8)
    with connected(broker) as asks:
        wait_until("the offset is there", lambda: committed(asks, "simple") == 7, WAIT_S)
