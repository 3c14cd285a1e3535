"""Kafka's wire protocol on plain sockets, encoded by kafka-python: many members, few connections.

The broker processes one request at a time of a connection, and so answers in order. A join that
waits for other members delays all later requests of its connection. So members of one group use
different connections.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent
from tests.support.broker import HOST, Broker
from tests.support.fleet import Member
from tests.support.peer import NOT_YET

JOIN_VERSION = 3
SYNC_VERSION = 3
HEARTBEAT_VERSION = 3
_FIND_VERSION = 3
_SIZE = struct.Struct(">i")
_READ_BYTES = 1 << 18
_ANSWER_TIMEOUT_S = 60.0
_MOMENT_S = 0.005
# The position in a heartbeat's response of version 3: after correlation id and throttle time.
_ERROR_AT = 8


def frame(request: ApiMessage, version: int, client_id: str, correlation_id: int = 0) -> bytes:
    """Return the bytes of a request, with its length and header."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    encoded: bytes = request.encode(header=True, framed=True)
    return encoded


class Connection:
    """One connection that sends and receives frames."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection((HOST, broker.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, data: bytes) -> None:
        """Send frames; block while the broker does not accept them."""
        self.socket.sendall(data)

    def receive(self) -> list[bytes]:
        """Wait for bytes; return the complete frames, without their lengths."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise Failure("the broker closed a connection")
        received = self._received
        received += data
        frames = []
        begin = 0
        while len(received) - begin >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received, begin)
            end = begin + _SIZE.size + size
            if end > len(received):
                break
            frames.append(bytes(received[begin + _SIZE.size : end]))
            begin = end
        del received[:begin]
        return frames

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def await_coordinator(broker: Broker, group_id: str) -> None:
    """Wait until the broker coordinates the group; the first request creates its offsets topic.

    Raises Failure on a timeout.
    """
    limit = time.monotonic() + _ANSWER_TIMEOUT_S
    request = FindCoordinatorRequest(key=group_id, key_type=0)
    while True:
        connection = Connection(broker)
        try:
            connection.send(frame(request, _FIND_VERSION, "bench"))
            (answer,) = connection.receive()
        finally:
            connection.close()
        found = FindCoordinatorResponse.decode(answer, version=_FIND_VERSION, header=True)
        if found.error_code == ErrorCode.NONE:
            return
        if found.error_code not in NOT_YET or time.monotonic() > limit:
            raise Failure(f"the broker has no coordinator: error {found.error_code}")
        time.sleep(0.1)


class BrokerPeer:
    """The broker as a `Peer`: it accepts request events, and returns responses as rows.

    Members with the same index in their groups share a connection.
    """

    def __init__(self, broker: Broker, groups: list[list[Member]]) -> None:
        self.broker = broker
        self._connections = [Connection(broker) for _ in range(max(map(len, groups)))]
        self._of: dict[str, int] = {
            member.name: place for group in groups for place, member in enumerate(group)
        }
        self._sent: list[deque[RequestEvent]] = [deque() for _ in self._connections]
        self._selector = selectors.DefaultSelector()
        for place, connection in enumerate(self._connections):
            self._selector.register(connection.socket, selectors.EVENT_READ, place)

    def __enter__(self) -> BrokerPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for connection in self._connections:
            connection.close()

    def send(self, events: list[RequestEvent]) -> None:
        """Send requests, each over its member's connection."""
        for event in events:
            place = self._of[event.client_id or ""]
            self._sent[place].append(event)
            self._connections[place].send(encode(event))

    def answers(self) -> list[dict[str, Any]]:
        """Return the responses that arrived within a moment, as rows of the `responses` table."""
        rows = []
        for key, _ in self._selector.select(_MOMENT_S):
            place = key.data
            for answer in self._connections[place].receive():
                rows.append(row_of(self._sent[place].popleft(), answer))
        return rows


def encode(event: RequestEvent) -> bytes:
    """Return the bytes of a join, sync or heartbeat."""
    client_id = event.client_id or ""
    if event.join_group is not None:
        join = event.join_group
        request = JoinGroupRequest(
            group_id=event.group_id,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            member_id=join.member_id,
            protocol_type=join.protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=p.name, metadata=p.metadata)
                for p in join.protocols
            ],
        )
        return frame(request, JOIN_VERSION, client_id)
    if event.sync_group is not None:
        sync = event.sync_group
        request = SyncGroupRequest(
            group_id=event.group_id,
            generation_id=sync.generation_id,
            member_id=sync.member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=each.member_id, assignment=each.assignment
                )
                for each in sync.assignments or ()
            ],
        )
        return frame(request, SYNC_VERSION, client_id)
    if event.heartbeat is not None:
        request = HeartbeatRequest(
            group_id=event.group_id,
            generation_id=event.heartbeat.generation_id,
            member_id=event.heartbeat.member_id,
        )
        return frame(request, HEARTBEAT_VERSION, client_id)
    raise ValueError(f"a bench sends no {event.api}")


_RESPONSES: dict[str, tuple[type[ApiMessage], int]] = {
    "join_group": (JoinGroupResponse, JOIN_VERSION),
    "sync_group": (SyncGroupResponse, SYNC_VERSION),
    "heartbeat": (HeartbeatResponse, HEARTBEAT_VERSION),
}


def row_of(event: RequestEvent, answer: bytes) -> dict[str, Any]:
    """Return the response to a join, sync or heartbeat as a row of the `responses` table."""
    kind, version = _RESPONSES[event.api]
    response = kind.decode(answer, version=version, header=True)
    join = None
    if event.api == "join_group":
        members = [{"member_id": member.member_id} for member in response.members]
        join = {
            "generation_id": response.generation_id,
            "leader": response.leader,
            "member_id": response.member_id,
            "members": members,
        }
    return {
        "request_id": event.request_id,
        "api": event.api,
        "error_code": response.error_code,
        "responded_at": None,
        "join_group": join,
    }


class Flood:
    """Members of the broker that send heartbeats as fast as they are answered.

    A member's heartbeats have the same bytes, encoded once, so the driver costs little compared
    with the broker.
    """

    def __init__(self, broker: Broker, groups: list[list[Member]]) -> None:
        places = max(map(len, groups))
        self._frames = [
            [encode(group[place].heartbeat()) for group in groups if place < len(group)]
            for place in range(places)
        ]
        self._next = [0] * places
        self._connections = [Connection(broker) for _ in range(places)]

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def run(self, seconds: float) -> float:
        """Flood the broker; return its answered heartbeats a second. Raises Failure."""
        with selectors.DefaultSelector() as selector:
            for place, connection in enumerate(self._connections):
                selector.register(connection.socket, selectors.EVENT_READ, place)
                self._send(place, len(self._frames[place]))
            answered = 0
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                for key, _ in selector.select(_MOMENT_S):
                    count = self._receive(key.data)
                    answered += count
                    self._send(key.data, count)
            taken = time.perf_counter() - began
        for place in range(len(self._connections)):
            left = len(self._frames[place])
            while left:
                left -= self._receive(place)
        return answered / taken

    def _send(self, place: int, count: int) -> None:
        """Send the next `count` heartbeats in turn: responses come in the order of requests."""
        frames, begin = self._frames[place], self._next[place]
        self._next[place] = (begin + count) % len(frames)
        chosen = frames[begin : begin + count]
        self._connections[place].send(b"".join(chosen + frames[: count - len(chosen)]))

    def _receive(self, place: int) -> int:
        answers = self._connections[place].receive()
        for answer in answers:
            if answer[_ERROR_AT:] != b"\0\0":
                raise Failure(f"a heartbeat was answered {answer[_ERROR_AT:].hex()}")
        return len(answers)
