"""Requests to the group's coordinator, and the lookup of the coordinator with FindCoordinator.

An answer is ignored if its request has timed out or was abandoned. Source: Kafka's
ConsumerNetworkClient, and AbstractCoordinator (ensureCoordinatorReady, lookupCoordinator,
markCoordinatorUnknown).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_errors import (
    ON_FIND_COORDINATOR,
    ConsumerError,
    Reaction,
    disconnected_error,
    fatal_error,
    required_group_id,
    retriable_error,
)
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.events import LogLine
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    RequestEvent,
    Response,
)

# Called once, with the time (ms) and the answer; None if the request timed out or was abandoned.
Handler = Callable[[int, "Response | None"], None]


class InFlightRequest(Struct):
    """A request without an answer, which times out at `deadline` (absolute ms)."""

    api: str
    deadline: int
    handler: Handler


class InFlightRequests:
    """The requests to send, and those in flight with the handlers of their answers."""

    def __init__(self, settings: ConsumerSettings, new_request_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_request_id = new_request_id
        self._outgoing: deque[RequestEvent] = deque()
        self._in_flight: dict[str, InFlightRequest] = {}

    def send(
        self, now: int, api: str, body: Struct, handler: Handler, timeout_ms: int | None = None
    ) -> None:
        """Queue a request, which times out after `timeout_ms`, by default request.timeout.ms.

        Raises InvalidGroupIdError without a group, because a coordinator belongs to a group.
        """
        request = RequestEvent(
            request_id=self._new_request_id(),
            group_id=required_group_id(self._settings),
            api=api,
            client_id=self._settings.client_id,
            **{api: body},  # type: ignore[arg-type]
        )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        self._in_flight[request.request_id] = InFlightRequest(api, now + timeout_ms, handler)
        self._outgoing.append(request)

    def take(self) -> list[RequestEvent]:
        """Remove and return the requests to send now, in order."""
        taken = list(self._outgoing)
        self._outgoing.clear()
        return taken

    def complete(self, now: int, response: Response) -> bool:
        """Pass an answer to its request's handler; return False if the request is not in flight."""
        request = self._in_flight.pop(response.request_id, None)
        if request is None:
            return False
        request.handler(now, response)
        return True

    def expire(self, now: int) -> list[str]:
        """Fail the requests past their deadline; return the names of their APIs."""
        late = [key for key, request in self._in_flight.items() if now >= request.deadline]
        return self._fail_requests(now, late)

    def fail_all(self, now: int, except_api: str) -> None:
        """Fail every request except those of the API `except_api`."""
        self._fail_requests(
            now, [key for key, request in self._in_flight.items() if request.api != except_api]
        )

    def _fail_requests(self, now: int, request_ids: list[str]) -> list[str]:
        failed = [self._in_flight.pop(key) for key in request_ids]
        failed_ids = set(request_ids)
        self._outgoing = deque(
            event for event in self._outgoing if event.request_id not in failed_ids
        )
        for request in failed:
            request.handler(now, None)
        return [request.api for request in failed]

    @property
    def count(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) of the next timeout; None if no request is in flight."""
        return min((request.deadline for request in self._in_flight.values()), default=None)


GROUP_KEY_TYPE = 0
_API = "find_coordinator"


class CoordinatorLookup(Struct, eq=False):
    """The group's coordinator, which FindCoordinator looks up on request.

    `node` is the coordinator, None while it is unknown. The callbacks `on_found` are called when it
    is found, `on_failed` with the error after a failed attempt. `failure` is an error that is not
    retriable; the user's thread raises it.
    """

    _settings: ConsumerSettings
    _requests: InFlightRequests
    _backoff: ExponentialBackoff
    _log_lines: list[LogLine]
    node: FindCoordinatorResponse | None = None
    failure: ConsumerError | None = None
    on_found: list[Callable[[int], None]] = []
    on_failed: list[Callable[[int, ConsumerError], None]] = []
    _lookup_requested: bool = False
    _lookup_in_flight: bool = False
    _attempts: int = 0
    _retry_at: int = 0

    def request_lookup(self) -> None:
        """Let the next `tick` look up the coordinator, if it is unknown."""
        if self.node is None:
            self._lookup_requested = True

    def mark_unknown(self, now: int, cause: str) -> None:
        """Mark the coordinator as unknown; fail all requests in flight except FindCoordinator."""
        if self.node is None:
            return
        text = f"the coordinator of group {self._settings.group_id!r} is unknown: {cause}"
        self._log_lines.append(LogLine(now, "info", text))
        self.node = None
        self._requests.fail_all(now, except_api=_API)

    def tick(self, now: int) -> None:
        """Time out requests, and send FindCoordinator if a lookup is requested.

        A timeout of another request than FindCoordinator marks the coordinator as unknown.
        """
        late = [api for api in self._requests.expire(now) if api != _API]
        if late:
            self.mark_unknown(now, f"no answer in time to {', '.join(late)}")
        if self._lookup_requested and not self._lookup_in_flight and now >= self._retry_at:
            self._lookup_in_flight = True
            self._requests.send(now, _API, FindCoordinatorRequest(GROUP_KEY_TYPE), self._on_answer)

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) of the next FindCoordinator; None if no lookup is due."""
        return self._retry_at if self._lookup_requested and not self._lookup_in_flight else None

    def _on_answer(self, now: int, response: Response | None) -> None:
        self._lookup_in_flight = False
        if response is None:
            self._fail(now, disconnected_error(_API))
        elif response.error_code == ErrorCode.NONE and response.find_coordinator is not None:
            self.node = response.find_coordinator
            self._lookup_requested = False
            self._attempts = 0
            for callback in self.on_found:
                callback(now)
        elif ON_FIND_COORDINATOR.get(response.error_code) is Reaction.RETRY:
            self._fail(now, retriable_error(_API, response.error_code))
        else:
            code, message = response.error_code, response.error_message
            self.failure = fatal_error(_API, code, self._settings, message)
            self._fail(now, self.failure)

    def _fail(self, now: int, error: ConsumerError) -> None:
        self._retry_at = now + self._backoff(self._attempts)
        self._attempts += 1
        for failed in self.on_failed:
            failed(now, error)
