"""Both sides: a broker on its sockets, and this coordinator with the gateway's messages."""

from __future__ import annotations

import asyncio
import select
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.gateway.api import CoordinatorHandler
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.replay.simulator import Simulator
from group_coordinator.schemas.kafka.reading import reader
from group_coordinator.schemas.messages import RequestEvent, Response
from tests.support.broker import HOST
from tests.support.wire import Connection, frame
from tests.trials.broker.exchange import HANDLERS

if TYPE_CHECKING:
    from tests.support.broker import Broker
    from tests.trials.broker.exchange import Draft

CLIENT = "client"
TOPICS = {"t0": 4, "t1": 2}
# The timeout for a response of the broker that this coordinator has given.
_ANSWER_S = 20.0
_LACKING_S = 0.5
_MOMENT_S = 0.05
_COMMIT_MS = 5_000


class Side(Protocol):
    """The other side: requests in places; each place has one request in flight."""

    def send(self, place: int, draft: Draft) -> None:
        """Send a request."""

    def answer(self, place: int, draft: Draft, may_lack: bool = False) -> bytes | None:
        """Return the body of the next response in a place; None after a timeout.

        The timeout is short with `may_lack`. After a timeout the place gets a new connection.
        """

    def unasked(self) -> list[int]:
        """Return the places with a response that was not requested."""

    def close(self) -> None:
        """End all connections."""


class Ours:
    """The coordinator in this process, in simulated time; it reads the names of `side`."""

    def __init__(self, side: str = "ours") -> None:
        self._side = side
        self._simulator = Simulator(parse_config({"group.initial.rebalance.delay.ms": 0}))
        for _ in self._simulator.dispatch({"topics": TOPICS}):
            raise AssertionError("topics are no request")
        self._requests = 0
        # Requests in flight: place, request, and the gateway's context.
        self._waiting: dict[str, tuple[int, Draft, Any, Any]] = {}

    def send(self, place: int, draft: Draft) -> list[tuple[int, Draft, bytes]]:
        """Decide a request; return the responses that are ready, each with its place."""
        handler = HANDLERS[draft.api]
        request = reader(handler.request, draft.version)(draft.body(self._side), 0)
        answered: list[tuple[int, Draft, bytes]] = []
        call = SimpleNamespace(version=draft.version, event=self._event(draft.version))
        if isinstance(handler.handler, CoordinatorHandler):
            event = handler.handler.to_event(cast(Any, call), request)
            self._waiting[event.request_id or ""] = (place, draft, call, request)
            self._decide(event, answered)
        else:
            call.services = SimpleNamespace(
                refusals=SimpleNamespace(refusal_of=lambda _event: None),
                link=SimpleNamespace(commit_timeout_ms=_COMMIT_MS),
                in_flight=MemoryPool(1_000),
                settings=SimpleNamespace(queued_max_requests=1_000),
            )
            asked = self._asking(answered)
            call.send = asked
            call.send_within = lambda event, timeout_ms: asked(event)  # noqa: ARG005
            found = asyncio.run(cast(Any, handler.handler)(call, request))
            answered.append((place, draft, handler.write(found, draft.version)))
        # Timers that are due at once.
        self._take({"advance_to_ms": self._simulator.now + 1}, answered)
        return answered

    def _event(self, version: int) -> Any:
        def event(api: str, group_id: str, body: Any) -> RequestEvent:
            self._requests += 1
            return RequestEvent(
                request_id=f"r{self._requests}",
                group_id=group_id,
                api=api,
                api_version=version,
                client_id=CLIENT,
                client_host=f"/{HOST}",
                **{api: body},
            )

        return event

    def _asking(self, answered: list[tuple[int, Draft, bytes]]) -> Any:
        async def ask(event: RequestEvent) -> Response:
            return self._decide(event, answered)[event.request_id]

        return ask

    def _decide(
        self, event: RequestEvent, answered: list[tuple[int, Draft, bytes]]
    ) -> dict[str | None, Response]:
        return self._take(msgspec.to_builtins(event), answered)

    def _take(
        self, entry: dict[str, Any], answered: list[tuple[int, Draft, bytes]]
    ) -> dict[str | None, Response]:
        """Dispatch an entry to the coordinator, and return all responses by request id."""
        decided = {}
        for output in self._simulator.dispatch(entry):
            response = output.get("response")
            if response is None:
                continue
            decided[response.request_id] = response
            if response.request_id in self._waiting:
                place, draft, call, request = self._waiting.pop(response.request_id)
                handler = HANDLERS[draft.api]
                respond = cast(CoordinatorHandler, handler.handler).to_response
                found = respond(call, request, response)
                answered.append((place, draft, handler.write(found, draft.version)))
        return decided

    @property
    def waiting(self) -> set[int]:
        """The places with a parked request."""
        return {place for place, *_ in self._waiting.values()}


class Theirs:
    """A broker, by a connection for each place."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[int, Connection] = {}

    def send(self, place: int, draft: Draft) -> None:
        """Send a request."""
        if place not in self._connections:
            self._connections[place] = Connection(self._broker)
        sent = frame(draft.message("theirs"), draft.version, CLIENT)
        self._connections[place].send(sent)

    def answer(self, place: int, draft: Draft, may_lack: bool = False) -> bytes | None:
        """Return the body of the next answer in a place; None if there is none in time."""
        connection = self._connections[place]
        limit_s = _LACKING_S if may_lack else _ANSWER_S
        ready, _, _ = select.select([connection.socket], [], [], limit_s)
        if not ready:
            self._connections.pop(place).close()
            return None
        frames: list[bytes] = []
        while not frames:
            frames = connection.receive()
        (only,) = frames
        # After the correlation id the header has tagged fields, if the version is flexible.
        return only[5:] if HANDLERS[draft.api].is_flexible(draft.version) else only[4:]

    def unasked(self) -> list[int]:
        """Return the places with a response of the broker that this coordinator has not given."""
        sockets: dict[socket.socket, int] = {
            each.socket: place for place, each in self._connections.items()
        }
        ready, _, _ = select.select(list(sockets), [], [], _MOMENT_S)
        return sorted(sockets[each] for each in ready)

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
