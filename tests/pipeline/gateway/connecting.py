"""What a connection of a gateway has around it, without a socket and without a gateway."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from group_coordinator.pipeline.gateway.acceptor import ClientAddress, RateLimitedLogger
from group_coordinator.pipeline.gateway.connection import Connection
from group_coordinator.pipeline.gateway.memory_pool import AddressQuota, MemoryPool, ResponseMemory
from group_coordinator.pipeline.gateway.pending_request import PendingRequest
from group_coordinator.pipeline.gateway.receiving import LoopTicks
from group_coordinator.pipeline.gateway.session import Session


class Socket(asyncio.Transport):
    """A transport that is told whether to read, and when to end, and keeps what is written."""

    is_read = True
    is_closed = is_aborted = False
    # What of it the client has not taken, bytes.
    unwritten = 0

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unwritten

    def write(self, data: Any) -> None:
        self.written += data


class Begun:
    """A session whose requests the test answers; it keeps the frames with their dates."""

    largest_frame = 1 << 20
    must_authenticate = False

    def __init__(self) -> None:
        self.frames: list[tuple[bytes, int]] = []
        self.requests: list[PendingRequest] = []

    def start(self, request: PendingRequest, sent_after: int) -> None:
        self.frames.append((request.frame, sent_after))
        self.requests.append(request)
        request._running = self

    def cancel(self) -> None:
        """Nothing runs."""


class Made:
    """A connection, what it has begun, and its socket."""

    def __init__(self, room: MemoryPool) -> None:
        self.begun = Begun()
        self.socket = Socket()
        self._arrivals = memoryview(bytearray(1 << 18))
        address = ClientAddress("192.0.2.1", AddressQuota(room, room.limit))
        self.connection = Connection(
            cast(Session, self.begun),
            self._arrivals,
            address,
            LoopTicks(),
            RateLimitedLogger(),
            lambda _: None,
        )
        self.connection.connection_made(self.socket)

    def arrives(self, data: bytes) -> None:
        self._arrivals[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def frames(self) -> list[bytes]:
        return [frame for frame, _ in self.begun.frames]


def anywhere() -> ClientAddress:
    return ClientAddress("127.0.0.1", AddressQuota(MemoryPool(1 << 30), 1 << 30))


def plenty() -> ResponseMemory:
    """The answer of a connection whose address has all of the memory for itself."""
    return ResponseMemory(anywhere().memory)


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in bodies)
