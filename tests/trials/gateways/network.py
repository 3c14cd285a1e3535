"""Sockets of the world: listeners, and bytes in transit between processes.

Bytes arrive in order after a short delay, in the pieces in which they were written. A killed
process closes its sockets; the other ends notice after `reset`. A paused process reads later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tests.trials.gateways.loop import SimulatedLoop

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.acceptor import RateLimitedLogger
    from tests.trials.simulation.world import Process, World

_LATENCY_MS = (0.05, 1.0)
Accepted = Callable[[Any, str], None]


class End(asyncio.Transport):
    """One end of a connection. It exists before its protocol, and buffers bytes until then."""

    def __init__(self, network: Network, loop: SimulatedLoop) -> None:
        super().__init__()
        self.loop = loop
        self.peer: End
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        # Pieces in transit to this end, and those that have arrived; None is the connection's end.
        self._coming: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._free_at = 0.0
        self._is_paused = False
        self._is_closing = False
        self.is_lost = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Start to deliver bytes to a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read()

    def come(self, data: bytes | None) -> None:
        """Deliver a piece after those already in transit."""
        world = self.loop.world
        at = max(self._free_at, world.now + self._network.chance.uniform(*_LATENCY_MS))
        self._free_at = at
        self._coming.append(data)
        self.loop.post(at - world.now, self._arrive)

    def _arrive(self) -> None:
        self._arrived.append(self._coming.popleft())
        self._read()

    def _read(self) -> None:
        while self._arrived and self._protocol is not None and not self._is_paused:
            data = self._arrived.popleft()
            if self.is_lost:
                continue
            if data is None:
                self._lose()
            elif isinstance(self._protocol, asyncio.BufferedProtocol):
                _fill(self._protocol, data)
            else:
                cast(asyncio.Protocol, self._protocol).data_received(data)

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = self._is_closing = True
            self._network.ends.pop(id(self), None)
            if self._protocol is not None:
                self._protocol.connection_lost(None)

    # --- asyncio's transport --------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """`asyncio.WriteTransport.write`."""
        if not self._is_closing:
            self.peer.come(bytes(data))

    def close(self) -> None:
        """`asyncio.BaseTransport.close`."""
        if not self._is_closing:
            self._is_closing = True
            self.peer.come(None)
            self.loop.call_soon(self._lose)

    def abort(self) -> None:
        """`asyncio.WriteTransport.abort`."""
        self.close()

    def is_closing(self) -> bool:
        """`asyncio.BaseTransport.is_closing`."""
        return self._is_closing

    def pause_reading(self) -> None:
        """`asyncio.ReadTransport.pause_reading`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """`asyncio.ReadTransport.resume_reading`."""
        self._is_paused = False
        self.loop.call_soon(self._read)


def _fill(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    while data:
        room = cast(memoryview, protocol.get_buffer(len(data)))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


class Listening:
    """In the place of `pipeline.gateway.acceptor.Listening`."""

    def __init__(self, network: Network, loop: SimulatedLoop, port: int) -> None:
        self.port = port
        self.loop = loop
        self.accepted: Accepted | None = None
        self._network = network

    def begin(self, accepted: Accepted) -> None:
        """Begin to accept."""
        self.accepted = accepted
        self._network.listening[self.port] = self

    def close(self) -> None:
        """Accept no more."""
        if self._network.listening.get(self.port) is self:
            del self._network.listening[self.port]


class Network:
    """All sockets of a world. A gateway is identified by its port."""

    def __init__(self, world: World) -> None:
        self.chance = world.rng("network")
        self.listening: dict[int, Listening] = {}
        self.ends: dict[int, End] = {}

    async def bind(self, _host: str, port: int, _lines: RateLimitedLogger) -> Listening:
        """`pipeline.gateway.acceptor.bind`."""
        return Listening(self, cast(SimulatedLoop, asyncio.get_running_loop()), port)

    async def connect(self, port: int, host: str, protocol: asyncio.Protocol) -> End:
        """Connect from a host, in its loop. Raises ConnectionRefusedError."""
        loop = cast(SimulatedLoop, asyncio.get_running_loop())
        await asyncio.sleep(self.chance.uniform(*_LATENCY_MS) / 1000)
        there = self.listening.get(port)
        if there is None or not there.loop.actor.alive:
            raise ConnectionRefusedError(port)
        ours, theirs = End(self, loop), End(self, there.loop)
        ours.peer, theirs.peer = theirs, ours
        self.ends[id(ours)], self.ends[id(theirs)] = ours, theirs

        def arrive() -> None:
            # A connection in the backlog of a closed socket is reset, and never accepted.
            if self.listening.get(port) is there and there.accepted is not None:
                there.accepted(theirs, host)
            else:
                theirs.abort()

        there.loop.post(self.chance.uniform(*_LATENCY_MS), arrive)
        ours.begin(protocol)
        return ours

    def reset(self, process: Process) -> None:
        """Close the sockets of a process that was killed."""
        for port, each in list(self.listening.items()):
            if each.loop.actor.process is process:
                del self.listening[port]
        for end in list(self.ends.values()):
            if end.loop.actor.process is process:
                del self.ends[id(end)]
                end.is_lost = True
                end.peer.come(None)
