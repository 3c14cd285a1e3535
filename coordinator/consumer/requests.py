"""Requests to be sent, and requests whose answers are waited for.

An answer that comes after its request's timeout, or after the request was abandoned, is ignored.
Source: what Kafka's ConsumerNetworkClient decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from group_coordinator.coordinator.consumer.errors import group_of
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.messages import RequestEvent, Response

# Called once, with the time (ms) and the answer, or None if there will be none.
Handler = Callable[[int, "Response | None"], None]


class InFlight(Struct):
    """A request whose answer is waited for until `deadline` (absolute ms)."""

    api: str
    deadline: int
    handler: Handler


class Requests:
    """Makes requests, and passes each answer to the handler of its request."""

    def __init__(self, settings: ConsumerSettings, new_request_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_request_id = new_request_id
        self._outgoing: deque[RequestEvent] = deque()
        self._in_flight: dict[str, InFlight] = {}

    def send(
        self, now: int, api: str, body: Struct, handler: Handler, timeout_ms: int | None = None
    ) -> None:
        """Send a request; its answer is waited for `timeout_ms`, by default request.timeout.ms.

        Raises InvalidGroupIdError without a group: no coordinator is asked anything then.
        """
        request = RequestEvent(
            request_id=self._new_request_id(),
            group_id=group_of(self._settings),
            api=api,
            client_id=self._settings.client_id,
            **{api: body},  # type: ignore[arg-type]
        )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        self._in_flight[request.request_id] = InFlight(api, now + timeout_ms, handler)
        self._outgoing.append(request)

    def take(self) -> list[RequestEvent]:
        """The requests to send now, in order; each is given out once."""
        taken = list(self._outgoing)
        self._outgoing.clear()
        return taken

    def answer(self, now: int, response: Response) -> bool:
        """Handle an answer; False if it is not waited for."""
        asked = self._in_flight.pop(response.request_id, None)
        if asked is None:
            return False
        asked.handler(now, response)
        return True

    def expire(self, now: int) -> list[str]:
        """Give up the requests past their deadline; returns their APIs."""
        late = [key for key, asked in self._in_flight.items() if now >= asked.deadline]
        return self._give_up(now, late)

    def abandon(self, now: int, but: str) -> None:
        """Give up every request except those of one API."""
        self._give_up(now, [key for key, asked in self._in_flight.items() if asked.api != but])

    def _give_up(self, now: int, request_ids: list[str]) -> list[str]:
        given_up = [self._in_flight.pop(key) for key in request_ids]
        gone = set(request_ids)
        self._outgoing = deque(one for one in self._outgoing if one.request_id not in gone)
        for asked in given_up:
            asked.handler(now, None)
        return [asked.api for asked in given_up]

    @property
    def waiting(self) -> int:
        """How many answers are waited for."""
        return len(self._in_flight)

    @property
    def deadline(self) -> int | None:
        """When the next request is given up, absolute ms; None if none is in flight."""
        return min((asked.deadline for asked in self._in_flight.values()), default=None)
