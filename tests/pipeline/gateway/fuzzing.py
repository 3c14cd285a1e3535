"""Clients that nobody should have: their frames are broken, torn, slow, or cut off."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.brokers import Broker
from tests.support.kafka_python import message

# Bytes of which lengths, counts and ends are made.
_EDGES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)
# APIs whose answer is a query of all tables, or a change of the catalogue: one of so many frames.
_COSTLY = frozenset({16, 19, 20, 37})
_COSTLY_EVERY = 200
# A client that has no answer by then goes, because there may never be one. On a busy machine the
# first answers take longer.
_PATIENCE_S, _FIRST_PATIENCE_S = 0.3, 60.0
_HEADER_BYTES = 10


class Frames:
    """Frames, each made of a valid request of some API by a few changes, or of chance alone."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._common: list[bytes] = []
        self._costly: list[bytes] = []
        for key, api in APIS.items():
            for version in api.row.versions:
                request: Any = message(api.request)(version=version)
                request.with_header(correlation_id=0, client_id="fuzz")
                frame = bytes(request.encode(header=True))
                (self._costly if key in _COSTLY else self._common).append(frame)

    def frame(self) -> bytes:
        """A frame with its size, which is a wrong one now and then."""
        chance = self._chance
        body = self._body()
        size = len(body)
        if chance.random() < 0.02:
            size = chance.choice((-1, 0, 3, size + 1, 2**31 - 1, chance.randrange(2**31)))
        return struct.pack(">i", size) + body

    def _body(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.1:
            return bytes(self._byte() for _ in range(chance.randint(0, 60)))
        costly = chance.randrange(_COSTLY_EVERY) == 0
        body = bytearray(chance.choice(self._costly if costly else self._common))
        # The version may be one of another request's, the rest of the header stays in most.
        begin = 0 if chance.random() < 0.1 else min(_HEADER_BYTES, len(body) - 1)
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            at = chance.randrange(begin, len(body))
            kind = chance.random()
            if kind < 0.6:
                body[at] = self._byte()
            elif kind < 0.8:
                body[at:at] = bytes(self._byte() for _ in range(chance.randint(1, 8)))
            else:
                del body[at : at + chance.randint(1, 8)]
                if len(body) <= begin:
                    break
        return bytes(body)

    def _byte(self) -> int:
        chance = self._chance
        return chance.choice(_EDGES) if chance.random() < 0.8 else chance.randrange(256)


class _Peer:
    """One connection of a bad client."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection((broker.host, broker.port), timeout=10)
        self.socket.setblocking(False)
        self.until = 0.0
        # The rest of a frame that is sent byte by byte.
        self.rest = b""
        self.received = bytearray()


class Fuzz:
    """So many bad clients at once; `counts` says what they did and what came of it."""

    def __init__(self, broker: Broker, seed: int, clients: int) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self._frames = Frames(self._chance)
        self._selector = selectors.DefaultSelector()
        self._clients = clients
        self._ready: deque[_Peer] = deque()
        self._waiting: set[_Peer] = set()
        self.counts: Counter[str] = Counter()

    def run(self, frames: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Send so many frames; `meanwhile` is called again and again."""
        for _ in range(self._clients):
            self._connect()
        while self.counts["frames"] < frames:
            while self._ready:
                self._act(self._ready.popleft())
            self._listen()
            meanwhile()
        for peer in [*self._waiting, *self._ready]:
            self._end(peer)
        self._selector.close()

    # --- what a client does -----------------------------------------------------------------------

    def _connect(self) -> None:
        peer = _Peer(self._broker)
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)
        self._ready.append(peer)
        self.counts["connections"] += 1

    def _act(self, peer: _Peer) -> None:
        chance, frame = self._chance.random(), self._frames.frame()
        self.counts["frames"] += 1
        with contextlib.suppress(OSError):
            if chance < 0.90:
                peer.socket.send(frame)
            elif chance < 0.93:
                self.counts["torn"] += 1
                peer.socket.send(frame[: self._chance.randrange(len(frame))])
                self._end(peer)
                self._connect()
                return
            elif chance < 0.96:
                self.counts["half closed"] += 1
                peer.socket.send(frame)
                peer.socket.shutdown(socket.SHUT_WR)
            elif chance < 0.98:
                self.counts["slow"] += 1
                peer.rest = frame
            else:
                self.counts["at once"] += 1
                peer.socket.send(frame * 5)
        peer.until = time.monotonic() + (
            _PATIENCE_S if self.counts["answers"] else _FIRST_PATIENCE_S
        )
        self._waiting.add(peer)

    def _listen(self) -> None:
        for key, _ in self._selector.select(0.002):
            self._receive(key.data)
        now = time.monotonic()
        for peer in list(self._waiting):
            if peer.rest:
                with contextlib.suppress(OSError):
                    peer.socket.send(peer.rest[:1])
                peer.rest = peer.rest[1:]
            if peer.until < now:
                self.counts["no answer in time"] += 1
                self._replace(peer)

    def _receive(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.counts["closed"] += 1
            self._replace(peer)
            return
        received = peer.received
        received += data
        whole = False
        while len(received) >= 4:
            (size,) = struct.unpack_from(">i", received)
            if len(received) < 4 + size:
                break
            del received[: 4 + size]
            self.counts["answers"] += 1
            whole = True
        if whole and peer in self._waiting:
            self._waiting.discard(peer)
            self._ready.append(peer)

    def _replace(self, peer: _Peer) -> None:
        self._end(peer)
        self._connect()

    def _end(self, peer: _Peer) -> None:
        self._waiting.discard(peer)
        self._selector.unregister(peer.socket)
        peer.socket.close()
