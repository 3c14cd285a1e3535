"""A client's connections: requests that kafka-python encodes, and answers that it decodes."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.support.wire import frame

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

    from tests.trials.gateways.calm import Calm
    from tests.trials.gateways.network import End, Network
    from tests.trials.simulation.world import World

_SIZE = struct.Struct(">i")
# The timeout of a request, s: shorter than a response may take during faults.
REQUEST_TIMEOUT_S = 3.0


class Lost(Exception):
    """There will be no answer: the gateway could not be reached, or the time is over."""


def _lose(asked: asyncio.Future[bytes]) -> None:
    asked.set_exception(Lost("the connection was closed"))
    # A caller that abandons its other requests never awaits this result.
    asked.exception()


class _Answers(asyncio.Protocol):
    """The responses of a connection, in the order of the requests."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.is_lost = False
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        self._buffer += data
        while len(self._buffer) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer)
            end = _SIZE.size + size
            if len(self._buffer) < end:
                return
            answer = bytes(self._buffer[_SIZE.size : end])
            del self._buffer[:end]
            asked = self.waiting.popleft()
            if not asked.done():
                asked.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Fail all pending requests."""
        self.is_lost = True
        for asked in self.waiting:
            if not asked.done():
                _lose(asked)


class Client:
    """A client at a host: it has one connection, and another one after any failure.

    A request is to one of `ports`, the same one as long as it answers.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        calm: Calm,
        name: str,
        host: str,
        ports: list[int],
    ) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.ports = ports
        self.chance = world.rng(name)
        self._network = network
        self.calm = calm
        self._end: End | None = None
        self._answers = _Answers()
        self._number = 0

    async def connect(self) -> None:
        """Connect, unless there is a connection. Raises Lost."""
        if self._end is not None and not self._answers.is_lost:
            return
        answers = _Answers()
        try:
            self._end = await self._network.connect(
                self.chance.choice(self.ports), self.host, answers
            )
        except ConnectionRefusedError as error:
            raise Lost("the gateway is not there") from error
        self._answers = answers

    def leave(self) -> None:
        """Close the connection."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def send(self, request: ApiMessage, version: int) -> asyncio.Future[bytes]:
        """Send a request over the connection there is; the future has the answer, or Lost."""
        assert self._end is not None
        self._number += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.world.count("requests")
        if self._answers.is_lost or self._end.is_closing():
            _lose(answer)
            return answer
        self._answers.waiting.append(answer)
        self._end.write(frame(request, version, self.name, self._number))
        return answer

    async def answer(self, sent: asyncio.Future[bytes]) -> bytes:
        """Wait for an answer. Raises Lost, after which the connection is closed."""
        begun = self.world.now
        try:
            found = await asyncio.wait_for(asyncio.shield(sent), REQUEST_TIMEOUT_S)
        except TimeoutError as error:
            self.leave()
            self.calm.not_answered(self.name, begun)
            raise Lost("the time is over") from error
        except Lost:
            self.leave()
            raise
        self.world.count("answers")
        self.calm.answered(begun)
        return found

    async def ask(self, request: ApiMessage, version: int, response: Any) -> Any:
        """Ask, and return the answer as `response`, a class of kafka-python's. Raises Lost."""
        await self.connect()
        answer = await self.answer(self.send(request, version))
        return response.decode(answer, version=version, header=True)
