"""The lookup of the group's coordinator with FindCoordinator.

Source: Kafka's AbstractCoordinator (ensureCoordinatorReady, lookupCoordinator,
markCoordinatorUnknown).
"""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.consumer.errors import (
    ConsumerError,
    disconnected,
    fatal,
    passing,
)
from group_coordinator.coordinator.consumer.events import Note
from group_coordinator.coordinator.consumer.reactions import ON_FIND_COORDINATOR, Reaction
from group_coordinator.coordinator.consumer.requests import Requests
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Response,
)

GROUP_KEY_TYPE = 0
_API = "find_coordinator"


class CoordinatorLookup:
    """The group's coordinator, looked up while it is wanted and unknown.

    `node` is the coordinator, None while it is unknown. The callbacks `on_found` are called when it
    is found, `on_failed` with the error after a failed attempt. `failure` is an error that is not
    retriable, which the user's thread raises.
    """

    def __init__(
        self, settings: ConsumerSettings, requests: Requests, backoff: Backoff, notes: list[Note]
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._backoff = backoff
        self._notes = notes
        self._wanted = False
        self._asking = False
        self._attempts = 0
        self._retry_at = 0
        self.node: FindCoordinatorResponse | None = None
        self.failure: ConsumerError | None = None
        self.on_found: list[Callable[[int], None]] = []
        self.on_failed: list[Callable[[int, ConsumerError], None]] = []

    def want(self) -> None:
        """Request a lookup by the next `tick`, if the coordinator is unknown."""
        if self.node is None:
            self._wanted = True

    def mark_unknown(self, now: int, cause: str) -> None:
        """Mark the coordinator as unknown, and fail its requests in flight.

        FindCoordinator requests stay in flight.
        """
        if self.node is None:
            return
        text = f"the coordinator of group {self._settings.group_id!r} is unknown: {cause}"
        self._notes.append(Note(now, "info", text))
        self.node = None
        self._requests.abandon(now, but=_API)

    def tick(self, now: int) -> None:
        """Time out requests, and send FindCoordinator if the coordinator is wanted.

        A timeout of another request than FindCoordinator marks the coordinator as unknown.
        """
        late = [api for api in self._requests.expire(now) if api != _API]
        if late:
            self.mark_unknown(now, f"no answer in time to {', '.join(late)}")
        if self._wanted and not self._asking and now >= self._retry_at:
            self._asking = True
            self._requests.send(now, _API, FindCoordinatorRequest(GROUP_KEY_TYPE), self._on_answer)

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) of the next FindCoordinator.

        None if the coordinator is not wanted, or the request is in flight.
        """
        return self._retry_at if self._wanted and not self._asking else None

    def _on_answer(self, now: int, response: Response | None) -> None:
        self._asking = False
        if response is None:
            self._fail(now, disconnected(_API))
        elif response.error_code == ErrorCode.NONE and response.find_coordinator is not None:
            self.node = response.find_coordinator
            self._wanted = False
            self._attempts = 0
            for found in self.on_found:
                found(now)
        elif ON_FIND_COORDINATOR.get(response.error_code) is Reaction.RETRY:
            self._fail(now, passing(_API, response.error_code))
        else:
            code, message = response.error_code, response.error_message
            self.failure = fatal(_API, code, self._settings, message)
            self._fail(now, self.failure)

    def _fail(self, now: int, error: ConsumerError) -> None:
        self._retry_at = now + self._backoff(self._attempts)
        self._attempts += 1
        for failed in self.on_failed:
            failed(now, error)
