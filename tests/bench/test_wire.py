"""Tests of Kafka's wire protocol in the benchmarks, with a stub for the broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import OffsetFetchRequest, SyncGroupAssignment
from tests.support.fleet import Member
from tests.support.wire import BrokerPeer, Flood, encode
from tests.waiting import wait_until

HEADER = struct.Struct(">ihhi")


class StandIn:
    """Answers heartbeats with `error`, and knows which members' came."""

    def __init__(self) -> None:
        self.error = 0
        self.seen: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if not self.port:
                connection.close()
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(HEADER.size):
                size, key, version, correlation = HEADER.unpack(head)
                rest = stream.read(4 + size - HEADER.size)
                assert key == HeartbeatRequest.API_KEY
                request = HeartbeatRequest.decode(head[4:] + rest, version=version, header=True)
                self.seen.append(request.member_id)
                connection.sendall(struct.pack(">iiih", 10, correlation, 0, self.error))

    def close(self) -> None:
        port, self.port = self.port, 0
        socket.create_connection(("127.0.0.1", port)).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


def members(groups: int, each: int) -> list[list[Member]]:
    return [[Member(f"g{g}", f"m-{g}-{i}") for i in range(each)] for g in range(groups)]


def test_a_flood_goes_round_all_members(stand_in: Any) -> None:
    groups = members(3, 2)
    with Flood(stand_in, groups) as flood:
        assert flood.run(0.1) > 0
        assert flood.run(0.1) > 0
    assert set(stand_in.seen) == {member.name for group in groups for member in group}
    of_first = [name for name in stand_in.seen if name.endswith("-0")]
    assert of_first[:4] == ["m-0-0", "m-1-0", "m-2-0", "m-0-0"]


def test_a_flood_that_is_refused_says_so(stand_in: Any) -> None:
    stand_in.error = 25
    with Flood(stand_in, members(1, 1)) as flood, pytest.raises(Failure, match="answered 0019"):
        flood.run(0.1)


def test_answers_find_their_requests(stand_in: Any) -> None:
    groups = members(2, 2)
    with BrokerPeer(stand_in, groups) as peer:
        events = [member.heartbeat() for group in groups for member in group]
        peer.send(events)
        rows: list[dict[str, Any]] = []
        wait_until(
            lambda: f"four answers, but {rows}",
            lambda: len(rows) >= len(events),
            meanwhile=lambda: rows.extend(peer.answers()),
        )
    assert {row["request_id"] for row in rows} == {event.request_id for event in events}
    assert {(row["api"], row["error_code"]) for row in rows} == {("heartbeat", 0)}


def test_events_are_encoded_as_kafka_reads_them() -> None:
    member = Member("group", "client")
    joined = JoinGroupRequest.decode(
        encode(member.join(again=True)), version=3, header=True, framed=True
    )
    assert (joined.group_id, joined.member_id) == ("group", "client")
    assert (joined.session_timeout_ms, joined.protocols[0].name) == (60_000, "range")
    assert joined.header.client_id == "client"
    synced = SyncGroupRequest.decode(
        encode(member.sync((SyncGroupAssignment("client", b"all"),))),
        version=3,
        header=True,
        framed=True,
    )
    assert [(a.member_id, a.assignment) for a in synced.assignments] == [("client", b"all")]
    with pytest.raises(ValueError, match="a bench sends no offset_fetch"):
        encode(member.fetch(OffsetFetchRequest()))
