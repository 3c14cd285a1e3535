"""Group members on plain sockets: the load of `gateway`.

Members have a connection each, as Kafka's clients, up to a number of connections; further members
share these. One thread drives them all. A heartbeat's bytes are made once. Members heartbeat by a
schedule that slow responses do not delay. A member with an unanswered heartbeat when the next one
is due sends none, and that heartbeat counts as late.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import RequestEvent
from tests.support.fleet import Member
from tests.support.rebalance import Rebalance
from tests.support.wire import encode, row_of

_READ_BYTES = 1 << 16
_MOMENT_S = 0.005
_SIZE = struct.Struct(">i")
# In a heartbeat's answer of version 3: after size, correlation id and throttle time.
_ERROR_AT = 12
# Files of this process that are no connections.
_OWN_FILES = 200


class Beaten(Struct):
    """The outcome of the heartbeats of one stretch. Times in s."""

    times: list[float]
    late: int
    errors: int
    lag_p99: float


def most_members() -> int:
    """Return the number of connections that this process may have, by its limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return (1 << 20 if hard == resource.RLIM_INFINITY else hard) - _OWN_FILES


class SocketFleet:
    """Groups of members at one address; a `Peer` of `Rebalance` while they join.

    There are at most `connections` connections. No more members may join at once, because a parked
    join blocks later requests on its connection.
    """

    def __init__(self, host: str, port: int, connections: int | None = None) -> None:
        self._address = (host, port)
        self._most = connections or most_members()
        self._epoll = select.epoll()
        self.members: list[Member] = []
        self._sockets: list[socket.socket] = []
        self._connection_of_fd: dict[int, int] = {}
        self._place_of_name: dict[str, int] = {}
        self._received: list[bytes] = []
        # The unanswered requests of each connection, by member and time: responses come in their
        # order.
        self._unanswered: list[deque[tuple[int, float]]] = []
        self._asked: list[RequestEvent | None] = []
        self._frames: list[bytes] = []

    def __enter__(self) -> SocketFleet:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()
        self._epoll.close()

    def grow(self, groups: list[list[Member]]) -> None:
        """Connect the members of more groups, and let the groups become Stable. Raises Failure."""
        new = [member for group in groups for member in group]
        for member in new:
            self._place_of_name[member.name] = len(self.members)
            self.members.append(member)
            self._asked.append(None)
            if len(self._sockets) < self._most:
                self._connect()
        Rebalance(self, new).run(new)
        # Each heartbeat of a member is the same bytes.
        self._frames += [encode(member.heartbeat()) for member in new]

    def _connect(self) -> None:
        connection = socket.create_connection(self._address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._connection_of_fd[connection.fileno()] = len(self._sockets)
        self._sockets.append(connection)
        self._received.append(b"")
        self._unanswered.append(deque())
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    # --- joining ----------------------------------------------------------------------------------

    def send(self, events: list[RequestEvent]) -> None:
        """Send requests, each over its member's connection."""
        for event in events:
            place = self._place_of_name[event.client_id or ""]
            self._asked[place] = event
            self._unanswered[place % self._most].append((place, time.perf_counter()))
            self._sockets[place % self._most].sendall(encode(event))

    def answers(self) -> list[dict[str, Any]]:
        """Return the responses that arrived within a moment, as rows of the `responses` table."""
        rows = []
        for place, _, frame in self._arrivals():
            event = self._asked[place]
            assert event is not None
            rows.append(row_of(event, frame[_SIZE.size :]))
        return rows

    def _arrivals(self) -> Iterator[tuple[int, float, bytes]]:
        """Yield the member, request time and frame of each response that arrives soon."""
        for fd, _ in self._epoll.poll(_MOMENT_S, 4096):
            number = self._connection_of_fd[fd]
            try:
                data = self._sockets[number].recv(_READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                raise Failure(f"the connection of {self.members[number].name} was closed")
            data = self._received[number] + data
            while len(data) >= _SIZE.size:
                end = _SIZE.size + _SIZE.unpack_from(data)[0]
                if len(data) < end:
                    break
                yield *self._unanswered[number].popleft(), data[:end]
                data = data[end:]
            self._received[number] = data

    # --- heartbeats -------------------------------------------------------------------------------

    def beat(self, seconds: float, interval_s: float, late_s: float | None = None) -> Beaten:
        """Let each member send a heartbeat every `interval_s`, evenly spread. Raises Failure.

        A response that takes longer than `late_s` is late; the default is the interval. The last
        responses are awaited for an interval, and as long as they are not late.
        """
        count, clock = len(self.members), time.perf_counter
        late_s = interval_s if late_s is None else late_s
        sent = [0.0] * count
        found = Beaten([], 0, 0, 0.0)
        lags: list[float] = []
        began, number = clock(), 0
        end = began + seconds
        last = end + max(interval_s, late_s)
        while True:
            now = clock()
            while (due := began + number * interval_s / count) <= now and due < end:
                place = number % count
                number += 1
                lags.append(now - due)
                if sent[place]:
                    found.late += 1
                    continue
                sent[place] = clock()
                with contextlib.suppress(BlockingIOError):
                    self._sockets[place % self._most].send(self._frames[place])
                    self._unanswered[place % self._most].append((place, sent[place]))
            for place, asked_at, frame in self._arrivals():
                if asked_at != sent[place]:
                    # Of an earlier stretch, which has counted it as late.
                    continue
                taken = clock() - asked_at
                sent[place] = 0.0
                found.times.append(taken)
                found.late += taken > late_s
                found.errors += frame[_ERROR_AT : _ERROR_AT + 2] != b"\0\0"
            if now >= end and (now > last or not any(sent)):
                break
        found.late += sum(1 for each in sent if each)
        found.lag_p99 = sorted(lags)[len(lags) * 99 // 100] if lags else 0.0
        return found
