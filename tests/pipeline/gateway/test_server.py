"""What the gateway does with frames in every version, and with some that no client would send."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator

import pytest
from kafka.protocol.consumer.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.schema import schema
from tests.pipeline.gateway.raw import Client, connected, heartbeat


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with connected(broker) as client:
        yield client
        # Whatever one connection is told, others are served.
        with connected(broker) as other:
            assert other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_no_api_is_offered_in_a_version_that_is_not_decided() -> None:
    for api in APIS.values():
        row = api.row
        assert row.key == schema(api.request).api_key
        assert row.versions and all(map(schema(api.request).is_valid, row.versions))
        assert row.name not in DECIDED or row.highest <= DECIDED[row.name].newest


@pytest.mark.parametrize("version", range(5))
def test_versions_are_told_in_each_version(client: Client, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = client.ask(request, ApiVersionsResponse, version)
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert told == {key: (api.row.lowest, api.row.highest) for key, api in APIS.items()}


def test_versions_that_are_too_new_are_told_which_there_are(client: Client) -> None:
    # A version of which kafka-python knows nothing either: header version 1, and no body.
    client.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    number, answer = client.receive(ApiVersionsResponse, 0)
    assert (number, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert {each.api_key for each in answer.api_keys} == set(APIS)


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_decided_in_each_version(client: Client, version: int) -> None:
    answer = client.ask(heartbeat(), HeartbeatResponse, version)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_answered_requests_are_no_garbage(client: Client) -> None:
    """The collector would have to find them, and the gateway stands still meanwhile."""
    many = 60
    client.ask(heartbeat(), HeartbeatResponse, 4)
    gc.collect()
    gc.disable()
    try:
        for _ in range(many):
            client.send(heartbeat(), 4)
        for _ in range(many):
            client.receive(HeartbeatResponse, 4)
        assert gc.collect() < many
    finally:
        gc.enable()


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_through_each_version(client: Client, version: int) -> None:
    group = f"lives-{version}"
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        reason="",
    )
    answer = client.ask(join, JoinGroupResponse, version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        join.member_id = answer.member_id
        answer = client.ask(join, JoinGroupResponse, version)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    assert answer.protocol_name == "range"
    assert [bytes(member.metadata) for member in answer.members] == [b"m"]
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=answer.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=answer.member_id, assignment=b"mine"
            )
        ],
    )
    synced = client.ask(sync, SyncGroupResponse, min(version, 5))
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    beat = client.ask(heartbeat(group, answer.member_id), HeartbeatResponse, min(version, 4))
    assert beat.error_code == 0
    leave = LeaveGroupRequest(
        group_id=group,
        member_id=answer.member_id,
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id=answer.member_id, group_instance_id=None, reason=None
            )
        ],
    )
    left = client.ask(leave, LeaveGroupResponse, min(version, 5))
    assert left.error_code == 0


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_offsets_of_a_group_without_any_are_none(client: Client, version: int) -> None:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[2])
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        group_id="none",
        topics=[topic],
        groups=[
            group(
                group_id=name,
                member_id=None,
                member_epoch=-1,
                topics=[group.OffsetFetchRequestTopics(name="orders", partition_indexes=[2])],
            )
            for name in ("none", "neither")
        ],
        require_stable=False,
    )
    answer = client.ask(request, OffsetFetchResponse, version)
    if version >= 8:
        assert [each.group_id for each in answer.groups] == ["none", "neither"]
        found = answer.groups[1].topics[0].partitions[0]
    else:
        found = answer.topics[0].partitions[0]
    assert (found.partition_index, found.committed_offset, found.error_code) == (2, -1, 0)


@pytest.mark.parametrize("version", range(7))
def test_this_gateway_is_the_coordinator(client: Client, broker: Broker, version: int) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g", "h"])
    answer = client.ask(request, FindCoordinatorResponse, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert {(each.node_id, each.host, each.port) for each in found} == {tuple(broker)}


def test_a_transaction_has_no_coordinator(client: Client) -> None:
    request = FindCoordinatorRequest(key="t", key_type=1)
    answer = client.ask(request, FindCoordinatorResponse, 2)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_requests_of_a_connection_are_answered_in_order(client: Client) -> None:
    for number in range(20):
        client.send(heartbeat(f"group-{number % 3}"), 4)
    assert [client.receive(HeartbeatResponse, 4)[0] for _ in range(20)] == list(range(1, 21))


def test_a_frame_may_come_a_byte_at_a_time(client: Client) -> None:
    request = heartbeat()
    request.API_VERSION = 4
    request.with_header(correlation_id=5, client_id=None)
    for byte in bytes(request.encode(header=True, framed=True)):
        client.socket.sendall(bytes([byte]))
    assert client.receive(HeartbeatResponse, 4)[0] == 5


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="a size beyond the limit"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">i", 0), id="no header"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="an unknown API"),
        pytest.param(struct.pack(">ihhih", 10, 12, 77, 1, -1), id="an unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 12, -1, 1, -1), id="a negative version"),
        pytest.param(struct.pack(">ihhih", 10, 12, 0, 1, 500), id="a client id beyond the frame"),
        pytest.param(struct.pack(">ihhih", 10, 12, 0, 1, -1), id="no body"),
        pytest.param(struct.pack(">ihhihh", 12, 12, 0, 1, -1, 40), id="a group id beyond it"),
        pytest.param(struct.pack(">ihhih", 12, 12, 4, 1, -1) + b"\xff\xff", id="an endless number"),
    ],
)
def test_what_is_no_request_closes_its_connection(client: Client, frame: bytes) -> None:
    client.socket.sendall(frame)
    assert client.is_closed()


def test_a_torn_body_is_not_taken_for_a_shorter_one(client: Client) -> None:
    request = heartbeat(member_id="a-long-member-id")
    request.API_VERSION = 0
    request.with_header(correlation_id=1, client_id="raw")
    whole = bytes(request.encode(header=True))
    client.socket.sendall(struct.pack(">i", len(whole) - 5) + whole[:-5])
    assert client.is_closed()
