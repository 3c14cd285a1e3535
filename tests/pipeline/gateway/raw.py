"""A raw connection to a gateway: whole frames, or whatever bytes a test sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.consumer.group import HeartbeatRequest

from group_coordinator.pipeline.gateway.brokers import Broker


class Client:
    """A raw connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.sent = 0

    def send(self, request: Any, version: int) -> None:
        self.sent += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self.sent, client_id="raw")
        self.socket.sendall(request.encode(header=True, framed=True))

    def receive(self, response: Any, version: int) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        read = response.decode(frame, version=version, header=True)
        return read.header.correlation_id, read

    def ask(self, request: Any, response: Any, version: int) -> Any:
        self.send(request, version)
        number, read = self.receive(response, version)
        assert number == self.sent
        return read

    def is_closed(self) -> bool:
        return self.socket.recv(1) == b""

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            assert more, "the gateway closed the connection"
            found += more
        return found


@contextmanager
def connected(broker: Broker) -> Iterator[Client]:
    with socket.create_connection((broker.host, broker.port), timeout=30) as connection:
        yield Client(connection)


def heartbeat(group_id: str = "g", member_id: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=1, member_id=member_id, group_instance_id=None
    )
