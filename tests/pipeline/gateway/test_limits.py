"""What a gateway refuses, what it lets wait, and what becomes of requests when somebody stops."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.tables.acl_table import AclWatcher
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.gateway.raw import Client, connected, heartbeat
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """The test's connections, which end with it."""
    with ExitStack() as stack:
        yield stack


def is_served(client: Client) -> bool:
    return bool(client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0)


def beat(client: Client, group_id: str = "g", member_id: str = "m", generation: int = 1) -> int:
    request = HeartbeatRequest(
        group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=None
    )
    return int(client.ask(request, HeartbeatResponse, 4).error_code)


def await_rows(root: str, count: int) -> None:
    """Wait until so many requests are written."""
    wait_until(
        f"{count} requests are written",
        lambda: open_table(root, REQUESTS).to_pyarrow_table().num_rows >= count,
    )


# --- limits -------------------------------------------------------------------------------------


def test_a_connection_too_many_is_closed_and_the_others_are_served(
    root: str, clients: ExitStack
) -> None:
    with gateway(root, settings=GatewaySettings(max_connections=2)) as broker:
        first, second = (clients.enter_context(connected(broker)) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        assert clients.enter_context(connected(broker)).is_closed()
        assert is_served(first)
        second.socket.close()

        def takes_another() -> bool:
            # What is sent to a connection that is closed already resets it.
            with connected(broker) as another, suppress(ConnectionError):
                another.send(ApiVersionsRequest(), 0)
                return bool(another.socket.recv(4))
            return False

        wait_until("the place of one that left", takes_another)


def test_an_idle_connection_is_closed_and_one_that_waits_is_not(
    root: str, clients: ExitStack
) -> None:
    idle = GatewaySettings(connections_max_idle_ms=300)
    with coordinator(root) as deciding, gateway(root, settings=idle) as broker:
        deciding.pause()
        waiting, slow, silent = (clients.enter_context(connected(broker)) for _ in range(3))
        waiting.send(heartbeat(), 4)
        # A frame that never ends is no request.
        slow.socket.sendall(struct.pack(">ih", 100, 12))
        assert silent.is_closed()
        assert slow.is_closed()
        deciding.resume()
        assert waiting.receive(HeartbeatResponse, 4)[0] == 1


def test_requests_beyond_those_in_flight_wait_and_joins_pass_them(
    root: str, clients: ExitStack
) -> None:
    limits = GatewaySettings(queued_max_requests=1)
    with coordinator(root) as deciding, gateway(root, settings=limits) as broker:
        deciding.pause()
        first, second, joining = (clients.enter_context(connected(broker)) for _ in range(3))
        first.send(heartbeat("g1"), 4)
        await_rows(root, 1)
        second.send(heartbeat("g2"), 4)
        joining.send(join("g3"), 9)
        await_rows(root, 2)
        rows = open_table(root, REQUESTS).to_pyarrow_table(columns=["group_id"]).to_pydict()
        assert set(rows["group_id"]) == {"g1", "g3"}
        deciding.resume()
        for client in (first, second):
            assert client.receive(HeartbeatResponse, 4)[0] == 1
        assert joining.receive(JoinGroupResponse, 9)[0] == 1


def test_members_that_share_a_connection_heartbeat_together(root: str, clients: ExitStack) -> None:
    with coordinator(root) as deciding, gateway(root) as broker:
        deciding.pause()
        shared = clients.enter_context(connected(broker))
        for number in range(3):
            shared.send(heartbeat(f"g{number}"), 4)
            shared.send(heartbeat("g"), 4)
        await_rows(root, 6)
        deciding.resume()
        answers = [shared.receive(HeartbeatResponse, 4) for _ in range(6)]
        assert [number for number, _ in answers] == list(range(1, 7))
        rows = open_table(root, REQUESTS).to_pyarrow_table().to_pylist()
        assert len({row["request_id"] for row in rows}) == 6
        assert len({str({**row, "request_id": 0, "sent_at": 0}) for row in rows}) == 4


def test_what_follows_a_join_waits_for_it(root: str, clients: ExitStack) -> None:
    with coordinator(root) as deciding, gateway(root) as broker:
        deciding.pause()
        client = clients.enter_context(connected(broker))
        client.send(join("g"), 9)
        client.send(heartbeat("g"), 4)
        other = clients.enter_context(connected(broker))
        other.send(heartbeat("other"), 4)
        await_rows(root, 2)
        rows = open_table(root, REQUESTS).to_pyarrow_table(columns=["api", "group_id"]).to_pylist()
        assert {"api": "heartbeat", "group_id": "g"} not in rows
        deciding.resume()
        assert client.receive(JoinGroupResponse, 9)[0] == 1
        assert client.receive(HeartbeatResponse, 4)[0] == 2


def test_who_leaves_the_queue_holds_up_nobody(root: str, clients: ExitStack) -> None:
    limits = GatewaySettings(queued_max_requests=1)
    with coordinator(root) as deciding, gateway(root, settings=limits) as broker:
        deciding.pause()
        in_flight, patient = (clients.enter_context(connected(broker)) for _ in range(2))
        in_flight.send(heartbeat("g1"), 4)
        await_rows(root, 1)
        with connected(broker) as impatient:
            impatient.send(heartbeat("g2"), 4)
        patient.send(heartbeat("g3"), 4)
        # Nobody waits for its answer any more: the next one's request is in flight.
        in_flight.socket.close()
        await_rows(root, 2)
        deciding.resume()
        assert patient.receive(HeartbeatResponse, 4)[0] == 1
        rows = open_table(root, REQUESTS).to_pyarrow_table(columns=["group_id"]).to_pydict()
        assert "g3" in rows["group_id"]


def test_a_large_request_waits_for_room_and_small_ones_do_not(
    root: str, clients: ExitStack
) -> None:
    limits = GatewaySettings(queued_max_request_bytes=1_000_000)
    with coordinator(root), gateway(root, settings=limits) as broker:
        slow, large, small = (clients.enter_context(connected(broker)) for _ in range(3))
        # Most of the room is held by a client that does not send the rest.
        slow.socket.sendall(struct.pack(">ihhih", 900_000, 12, 0, 1, -1))
        assert is_served(small)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        request.API_VERSION = 0
        request.with_header(correlation_id=7, client_id="raw")
        body = bytes(request.encode(header=True))
        # Bytes after a body are passed over.
        padded = body + bytes(400_000 - len(body))
        sending = threading.Thread(
            target=large.socket.sendall, args=(struct.pack(">i", len(padded)) + padded,)
        )
        sending.start()
        assert is_served(small)
        large.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            large.socket.recv(1)
        assert beat(small) != 0
        large.socket.settimeout(30)
        slow.socket.close()
        assert large.receive(HeartbeatResponse, 0)[0] == 7
        sending.join()


def test_room_is_given_in_the_order_of_those_who_wait() -> None:
    memory, given = MemoryPool(100), []

    def wanting(name: str, size: int) -> bool:
        return memory.try_acquire(size, lambda: given.append(name))

    assert wanting("a", 60)
    assert not wanting("b", 50)
    # It would fit, but "b" would then wait for ever.
    assert not wanting("c", 10)
    memory.release(60)
    assert given == ["b", "c"]
    memory.release(60)
    assert wanting("larger than all", 1_000)
    assert not wanting("d", 1)
    memory.release(1_000)
    assert given == ["b", "c", "d"]


def test_who_gives_up_waiting_holds_up_nobody() -> None:
    memory, given = MemoryPool(100), []

    def impatient() -> None:
        given.append("impatient")

    assert memory.try_acquire(60, print)
    assert not memory.try_acquire(100, impatient)
    assert not memory.try_acquire(30, lambda: given.append("patient"))
    memory.withdraw(impatient)
    assert given == ["patient"]


# --- ends ---------------------------------------------------------------------------------------


def join(group_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        reason="",
    )


def sync(group_id: str, member_id: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=1,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def become_member(client: Client, group_id: str) -> str:
    """Join a group of one, and become Stable."""
    named = client.ask(join(group_id), JoinGroupResponse, 9)
    joined = client.ask(join(group_id, named.member_id), JoinGroupResponse, 9)
    assert joined.generation_id == 1
    assert client.ask(sync(group_id, joined.member_id), SyncGroupResponse, 5).error_code == 0
    return str(joined.member_id)


def test_a_gateway_that_stops_answers_what_is_in_flight_and_takes_nothing_new(
    root: str, clients: ExitStack
) -> None:
    with coordinator(root) as deciding, ExitStack() as serving:
        broker = serving.enter_context(gateway(root))
        idle, waiting = (clients.enter_context(connected(broker)) for _ in range(2))
        assert is_served(idle)
        deciding.pause()
        waiting.send(heartbeat(), 4)
        await_rows(root, 1)
        stopping = threading.Thread(target=serving.close)
        stopping.start()
        assert idle.is_closed()
        with pytest.raises(ConnectionError):
            socket.create_connection((broker.host, broker.port), timeout=5)
        # What is sent now is not read any more.
        waiting.send(heartbeat(), 4)
        deciding.resume()
        assert waiting.receive(HeartbeatResponse, 4)[0] == 1
        with pytest.raises((ConnectionError, AssertionError)):
            waiting.receive(HeartbeatResponse, 4)
        stopping.join()


def test_a_gateway_that_ends_costs_nobody_the_membership(root: str, clients: ExitStack) -> None:
    with coordinator(root), gateway(root) as other:
        with gateway(root) as first:
            member_id = become_member(clients.enter_context(connected(first)), "g")
        assert beat(clients.enter_context(connected(other)), "g", member_id) == 0


def test_a_coordinator_that_restarts_is_waited_for(root: str, clients: ExitStack) -> None:
    with coordinator(root) as deciding, gateway(root) as broker:
        client = clients.enter_context(connected(broker))
        member_id = become_member(client, "g")
        deciding.pause()
        client.send(heartbeat("g", member_id), 4)
        await_rows(root, 4)
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(30)
        deciding.resume()
        assert client.receive(HeartbeatResponse, 4)[1].error_code == 0


def test_a_join_that_is_sent_again_after_a_time_out_makes_one_member(
    root: str, clients: ExitStack
) -> None:
    """A client whose request times out closes its connection and sends the request again."""
    with coordinator(root) as deciding, gateway(root) as broker:
        member_id = become_member(clients.enter_context(connected(broker)), "g")
        deciding.pause()
        for count in (4, 5):
            with connected(broker) as impatient:
                impatient.send(join("g", member_id), 9)
                await_rows(root, count)
        again = clients.enter_context(connected(broker))
        again.send(join("g", member_id), 9)
        await_rows(root, 6)
        deciding.resume()
        joined = again.receive(JoinGroupResponse, 9)[1]
        assert (joined.error_code, joined.leader) == (0, member_id)
        assert [member.member_id for member in joined.members] == [member_id]
        assert beat(again, "g", member_id, joined.generation_id) in (0, 27)


def test_a_member_that_joins_twice_without_an_id_does_not_hold_up_the_group(
    root: str, clients: ExitStack
) -> None:
    """The coordinator gave an id out that nobody heard of, and awaits no member by it."""
    with coordinator(root) as deciding, gateway(root) as broker:
        deciding.pause()
        with connected(broker) as impatient:
            unheard = join("g")
            unheard.session_timeout_ms = 1_000
            impatient.send(unheard, 9)
            await_rows(root, 1)
        deciding.resume()
        become_member(clients.enter_context(connected(broker)), "g")


def test_two_gateways_serve_one_member(root: str, clients: ExitStack) -> None:
    def connect(broker: Broker) -> Client:
        return clients.enter_context(connected(broker))

    with coordinator(root), gateway(root) as first, gateway(root) as second:
        member_id = become_member(connect(first), "g")
        assert [beat(connect(each), "g", member_id) for each in (first, second)] == [0, 0]


def test_who_may_do_what_is_not_known_so_nobody_is_answered_nor_refused_for_good(
    root: str, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose connection ends tries again; one that is not authorized ends itself."""
    asked = MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse, 4
    everybody = FindCoordinatorRequest(key="g", key_type=0), FindCoordinatorResponse, 1

    def away(_: AclWatcher) -> None:
        raise OSError("the store is away")

    with gateway(root) as broker:
        served = clients.enter_context(connected(broker))
        assert served.ask(*everybody).error_code == 0
        with monkeypatch.context() as broken:
            broken.setattr(AclWatcher, "poll", away)
            wait_until("it ends connections", lambda: is_cut_off(broker, everybody))
            # What needs no authorization is answered.
            assert is_served(clients.enter_context(connected(broker)))
        wait_until("it serves again", lambda: not is_cut_off(broker, everybody))
        assert clients.enter_context(connected(broker)).ask(*asked).brokers


def is_cut_off(broker: Broker, question: tuple[Any, Any, int]) -> bool:
    with connected(broker) as client:
        request, _, version = question
        client.send(request, version)
        return client.is_closed()
