"""A gateway that stood still does not carry out what its client has done elsewhere meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
)

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.gateway import request_context
from group_coordinator.pipeline.gateway.acceptor import RateLimitedLogger
from group_coordinator.pipeline.gateway.apis.acl_apis import code_of
from group_coordinator.pipeline.gateway.connection import Connection
from group_coordinator.pipeline.gateway.receiving import LoopTicks, ReceiveTimes
from group_coordinator.pipeline.gateway.session import Session
from group_coordinator.pipeline.tables.acl_table import add_acls, read_acls
from group_coordinator.pipeline.tables.topic_catalogue import (
    create_topic,
    delete_topic,
    read_newest,
)
from group_coordinator.schemas.acls import (
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.connecting import Begun, Socket, anywhere, framed
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import coordinator, gateway, standing_still
from tests.pipeline.gateway.test_tools_requests import (
    commit,
    commit_request,
    committed,
    delete_request,
)

TIMEOUT_MS = 2_000
# A gateway that stands still for so long dates what came meanwhile before its timeout, s.
LONG_S = TIMEOUT_MS / 1000 + 1


# --- when a frame was sent ------------------------------------------------------------------------


class Time:
    """A clock that a test moves, ms."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time_now() -> Time:
    return Time()


@pytest.fixture
def ticks(time_now: Time) -> LoopTicks:
    return LoopTicks(time_now)


def tick(ticks: LoopTicks, time_now: Time, *times: int) -> None:
    for time_now.now in times:
        ticks.tick()


def test_a_frame_was_sent_after_the_last_tick_but_one(ticks: LoopTicks, time_now: Time) -> None:
    """After the last tick the loop may not have polled: the frame may have been there at it."""
    times = ReceiveTimes(ticks)
    tick(ticks, time_now, 250, 500, 750, 1_000)
    times.on_read()
    assert times.sent_after == 750


def test_what_came_while_the_loop_stood_still_is_as_old_as_that(
    ticks: LoopTicks, time_now: Time
) -> None:
    times = ReceiveTimes(ticks)
    tick(ticks, time_now, 250, 500, 750, 60_000)
    times.on_read()
    assert times.sent_after == 750


def test_a_socket_that_was_not_polled_may_hold_what_is_as_old_as_what_was_read_last(
    ticks: LoopTicks, time_now: Time
) -> None:
    times = ReceiveTimes(ticks)
    tick(ticks, time_now, 250, 500, 750)
    times.on_read()
    tick(ticks, time_now, *range(1_000, 60_000, 250))
    times.on_polled()
    times.on_read()
    tick(ticks, time_now, 60_000)
    times.on_read()
    assert times.sent_after == 500
    tick(ticks, time_now, 60_250)
    times.on_read()
    assert times.sent_after == 60_000


def test_what_is_read_of_a_new_connection_was_sent_after_it_was_made(
    ticks: LoopTicks, time_now: Time
) -> None:
    tick(ticks, time_now, 250, 500, 60_000)
    times = ReceiveTimes(ticks)
    times.on_read()
    assert times.sent_after == 500


def test_frames_keep_their_dates_while_they_wait_for_the_one_before(
    ticks: LoopTicks, time_now: Time
) -> None:
    """A join that waits for other members is answered a minute later."""
    begun = Begun()
    arrivals = memoryview(bytearray(1 << 10))
    join, commit, later, last = b"\0\x0bjoin", b"\0\x08commit", b"\0\x08later", b"\0\x08last"

    async def connection() -> None:
        connection = Connection(
            cast(Session, begun), arrivals, anywhere(), ticks, RateLimitedLogger(), lambda _: None
        )
        socket = Socket()
        connection.connection_made(socket)

        def arrives(*frames: bytes) -> None:
            data = framed(*frames)
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))

        tick(ticks, time_now, 250, 500, 750)
        arrives(join)
        tick(ticks, time_now, 1_000)
        arrives(commit)
        tick(ticks, time_now, 1_250)
        arrives(later)
        assert not socket.is_read
        tick(ticks, time_now, *range(1_500, 60_000, 250))
        begun.requests[0].on_response(b"")
        assert socket.is_read
        arrives(last)
        for number in (1, 2):
            begun.requests[number].on_queued()

    asyncio.run(connection())
    assert begun.frames == [(join, 500), (commit, 750), (later, 1_000), (last, 1_000)]


def test_more_than_one_reading_takes_may_be_as_old_as_its_first_part(
    ticks: LoopTicks, time_now: Time
) -> None:
    begun = Begun()
    arrivals = memoryview(bytearray(64))

    async def connection() -> None:
        connection = Connection(
            cast(Session, begun), arrivals, anywhere(), ticks, RateLimitedLogger(), lambda _: None
        )
        connection.connection_made(Socket())
        data = framed(b"\0\x08" + b"x" * 66)
        tick(ticks, time_now, 250, 500, 750)
        arrivals[:] = data[:64]
        connection.buffer_updated(64)
        # Produced when the loop goes on: the tick is first.
        tick(ticks, time_now, 60_000)
        arrivals[: len(data) - 64] = data[64:]
        connection.buffer_updated(len(data) - 64)

    asyncio.run(connection())
    assert [date for _, date in begun.frames] == [500]


# --- two gateways ---------------------------------------------------------------------------------


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    """The loop of the gateway that stands still."""
    return asyncio.new_event_loop()


@pytest.fixture
def clients(root: str, loop: asyncio.AbstractEventLoop) -> Iterator[tuple[Client, Client]]:
    """Two clients, each of another gateway, of which the first one will stand still."""
    create_topic(root, "orders", 4)
    group = parse_config({"offsets.commit.timeout.ms": TIMEOUT_MS, "super.users": "User:ANONYMOUS"})
    with (
        coordinator(root, super_users="User:ANONYMOUS"),
        gateway(root, loop=loop, group=group) as first,
        gateway(root, group=group) as second,
        connected(first) as slow,
        connected(second) as client,
    ):
        yield slow, client


def repeated(client: Client, offsets: dict[int, int]) -> None:
    """Commit as clients do: again while the coordinator is not available."""
    while commit(client, "g", offsets) != [0]:
        pass


def test_an_old_commit_does_not_follow_a_newer_one(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop
) -> None:
    """10 reaches a gateway that stands still; its client turns to another one, and commits 20."""
    slow, client = clients
    repeated(slow, {0: 5})
    with standing_still(loop):
        slow.send(commit_request("g", {0: 10}), 9)
        time.sleep(LONG_S)
        repeated(client, {0: 20})
    _, answer = slow.receive(OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(client, "g") == [{("orders", 0): 20}]
    # The gateway that goes on serves its clients as before.
    repeated(slow, {0: 30})
    assert committed(client, "g") == [{("orders", 0): 30}]


def test_nor_does_one_whose_gateway_has_heard_no_time_of_the_coordinator_yet(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop
) -> None:
    slow, client = clients
    with standing_still(loop):
        slow.send(commit_request("g", {0: 10}), 9)
        time.sleep(LONG_S)
        repeated(client, {0: 20})
    _, answer = slow.receive(OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(client, "g") == [{("orders", 0): 20}]


def test_an_old_deletion_does_not_follow_a_newer_commit(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop
) -> None:
    slow, client = clients
    repeated(slow, {0: 5})
    with standing_still(loop):
        slow.send(delete_request("g", {"orders": [0]}), 0)
        time.sleep(LONG_S)
        repeated(client, {0: 20})
    _, answer = slow.receive(OffsetDeleteResponse, 0)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(client, "g") == [{("orders", 0): 20}]


def test_an_old_leave_does_not_remove_who_has_joined_since(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop
) -> None:
    """A static member's instance is removed by its name, which is that of the next one too."""
    slow, client = clients
    identity = LeaveGroupRequest.MemberIdentity(
        member_id="", group_instance_id="i", reason="replaced"
    )
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        reason="",
    )
    with standing_still(loop):
        slow.send(LeaveGroupRequest(group_id="g", members=[identity]), 5)
        time.sleep(LONG_S)
        assert client.ask(join, JoinGroupResponse, 9).error_code == 0
    _, answer = slow.receive(LeaveGroupResponse, 5)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (found,) = client.ask(
        DescribeGroupsRequest(groups=["g"], include_authorized_operations=False),
        DescribeGroupsResponse,
        5,
    ).groups
    assert [each.group_instance_id for each in found.members] == ["i"]


def test_a_commit_whose_client_leaves_at_once_is_decided(
    clients: tuple[Client, Client],
) -> None:
    slow, client = clients
    slow.send(commit_request("g", {0: 10}), 9)
    slow.socket.close()
    while committed(client, "g") != [{("orders", 0): 10}]:
        pass


# --- the catalogue and the ACLs -------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a change of topics or ACLs gives up as soon as who commits."""
    monkeypatch.setattr(request_context, "ADMIN_TIMEOUT_MS", TIMEOUT_MS)


def new_topic(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)


def deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)


@pytest.mark.usefixtures("hasty")
def test_a_topic_that_was_made_anew_is_not_deleted_by_an_old_request(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop, root: str
) -> None:
    slow, client = clients
    with standing_still(loop):
        slow.send(deletion("orders"), 5)
        time.sleep(LONG_S)
        assert client.ask(deletion("orders"), DeleteTopicsResponse, 5).responses[0].error_code == 0
        assert client.ask(new_topic("orders"), CreateTopicsResponse, 7).topics[0].error_code == 0
    _, answer = slow.receive(DeleteTopicsResponse, 5)
    assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert read_newest(root)["orders"].partitions == 2


@pytest.mark.usefixtures("hasty")
def test_nor_is_a_topic_made_or_grown_by_one(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop, root: str
) -> None:
    slow, _ = clients
    of_topic = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=9)
    growth = CreatePartitionsRequest(topics=[of_topic], timeout_ms=30_000, validate_only=False)
    with standing_still(loop):
        slow.send(new_topic("old"), 7)
        slow.send(growth, 3)
        time.sleep(LONG_S)
    _, created = slow.receive(CreateTopicsResponse, 7)
    assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    _, grown = slow.receive(CreatePartitionsResponse, 3)
    assert grown.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert read_newest(root)["orders"].partitions == 4
    assert "old" not in read_newest(root)


READ = AclBinding("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")


def numbered(acl: AclBinding, pattern_type: str, suffix: str = "") -> dict[str, Any]:
    """An ACL on the wire: fields of a creation, or, with their suffix, of a filter."""
    return {
        f"resource_type{suffix}": code_of(ResourceType, acl.resource_type),
        f"resource_name{suffix}": acl.resource_name,
        f"{pattern_type}{suffix}": code_of(PatternType, acl.pattern_type),
        f"principal{suffix}": acl.principal,
        f"host{suffix}": acl.host,
        "operation": code_of(AclOperation, acl.operation),
        "permission_type": code_of(Permission, acl.permission),
    }


def creation(acl: AclBinding) -> CreateAclsRequest:
    of = CreateAclsRequest.AclCreation(**numbered(acl, "resource_pattern_type"))
    return CreateAclsRequest(creations=[of])


def removal(acl: AclBinding) -> DeleteAclsRequest:
    of = DeleteAclsRequest.DeleteAclsFilter(**numbered(acl, "pattern_type", "_filter"))
    return DeleteAclsRequest(filters=[of])


@pytest.mark.usefixtures("hasty")
def test_an_acl_that_was_added_again_is_not_removed_by_an_old_request(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop, root: str
) -> None:
    slow, client = clients
    add_acls(root, [READ])
    with standing_still(loop):
        slow.send(removal(READ), 3)
        time.sleep(LONG_S)
        assert client.ask(removal(READ), DeleteAclsResponse, 3).filter_results[0].error_code == 0
        assert client.ask(creation(READ), CreateAclsResponse, 3).results[0].error_code == 0
    _, answer = slow.receive(DeleteAclsResponse, 3)
    assert answer.filter_results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert read_acls(root) == (READ,)


@pytest.mark.usefixtures("hasty")
def test_an_acl_that_was_removed_is_not_added_by_an_old_request(
    clients: tuple[Client, Client], loop: asyncio.AbstractEventLoop, root: str
) -> None:
    slow, client = clients
    with standing_still(loop):
        slow.send(creation(READ), 3)
        time.sleep(LONG_S)
        assert client.ask(creation(READ), CreateAclsResponse, 3).results[0].error_code == 0
        assert client.ask(removal(READ), DeleteAclsResponse, 3).filter_results[0].error_code == 0
    _, answer = slow.receive(CreateAclsResponse, 3)
    assert answer.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert read_acls(root) == ()


def test_who_stands_still_after_its_look_finds_the_catalogue_changed_and_looks_again(
    root: str,
) -> None:
    """The time is asked after each look, so the commit rests on a look that was in time."""
    create_topic(root, "orders", 4)
    looks = []

    def stand_still(_created: int) -> None:
        looks.append(read_newest(root)["orders"].partitions)
        if len(looks) > 1:
            raise request_context.DeadlinePassed("it is the next day")
        delete_topic(root, "orders")
        create_topic(root, "orders", 2)

    with pytest.raises(request_context.DeadlinePassed):
        delete_topic(root, "orders", stand_still)
    assert looks == [4, 2]
    assert read_newest(root)["orders"].partitions == 2
