"""Requests to send, and requests in flight.

An answer is ignored if its request has timed out or was abandoned. Source: the decisions of Kafka's
ConsumerNetworkClient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from group_coordinator.coordinator.consumer.errors import group_of
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.messages import RequestEvent, Response

# Called once, with the time (ms) and the answer; None if the request timed out or was abandoned.
Handler = Callable[[int, "Response | None"], None]


class InFlight(Struct):
    """A request without an answer, which times out at `deadline` (absolute ms)."""

    api: str
    deadline: int
    handler: Handler


class Requests:
    """The outgoing requests, and those in flight with the handlers of their answers."""

    def __init__(self, settings: ConsumerSettings, new_request_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_request_id = new_request_id
        self._outgoing: deque[RequestEvent] = deque()
        self._in_flight: dict[str, InFlight] = {}

    def send(
        self, now: int, api: str, body: Struct, handler: Handler, timeout_ms: int | None = None
    ) -> None:
        """Queue a request, which times out after `timeout_ms`, by default request.timeout.ms.

        Raises InvalidGroupIdError without a group, because a coordinator belongs to a group.
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
        """Return and remove the requests to send now, in order."""
        taken = list(self._outgoing)
        self._outgoing.clear()
        return taken

    def answer(self, now: int, response: Response) -> bool:
        """Pass an answer to its request's handler. Return False if the request is not in flight."""
        asked = self._in_flight.pop(response.request_id, None)
        if asked is None:
            return False
        asked.handler(now, response)
        return True

    def expire(self, now: int) -> list[str]:
        """Fail the requests past their deadline; return their APIs."""
        late = [key for key, asked in self._in_flight.items() if now >= asked.deadline]
        return self._give_up(now, late)

    def abandon(self, now: int, but: str) -> None:
        """Fail every request except those of the API `but`."""
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
        """The number of requests in flight."""
        return len(self._in_flight)

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) of the next timeout; None if no request is in flight."""
        return min((asked.deadline for asked in self._in_flight.values()), default=None)
