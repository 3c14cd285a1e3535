"""Client of the coordinator: it sends requests and returns their answers; thread-safe.

A client is one producer and one response reader. A process needs one for all its members.

A request waits for others at most `linger.ms`. If no other request is in flight, it is written at
once. Otherwise the coordinator is deciding a micro-batch, and new requests are held until shortly
before its expected end (`request_batches`), so that the next micro-batch reads them. If that time
is unknown, they are written when answers come.

This is Nagle's algorithm (RFC 896), with answers as the acknowledgements.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.pipeline.client.coordinator_clocks import (
    SIGNED_FOR_MS,
    CoordinatorClocks,
    time_request,
)
from group_coordinator.pipeline.client.request_batches import PollEstimator
from group_coordinator.pipeline.client.request_producer import RequestProducer
from group_coordinator.pipeline.client.response_reader import ResponseReader
from group_coordinator.pipeline.clock import monotonic, since_boot_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from group_coordinator.pipeline.client.request_producer_settings import ProducerSettings
    from group_coordinator.pipeline.client.response_reader import Waiter

REQUEST_TIMEOUT_MS = 30_000


class NoAnswer(Failure):
    """A request got no answer within its timeout."""


def _changes_group(event: RequestEvent) -> bool:
    """Return whether a request changes a group. A heartbeat does: it extends the session."""
    api = DECIDED.get(event.api)
    return api is not None and api.operation != "DESCRIBE"


class RequestClient:
    """A client that sends requests to the coordinator of a root, and returns its answers.

    A signed request that changes a group gets a deadline: the coordinator decides it within
    `SIGNED_FOR_MS`, or answers REQUEST_TIMED_OUT. So a later copy of its row is not decided again.
    The deadline needs the coordinator's time, which `clocks` learns from answers; before the first
    answer about the group, `send` and `submit` set no deadline.

    Raises SchemaMismatch and LaterRelease. Raises NoTables if no coordinator has run yet.
    """

    def __init__(self, root: str, settings: ProducerSettings | None = None) -> None:
        self._root = root
        self._poll_estimator = PollEstimator()
        self.clocks = CoordinatorClocks()
        self._reader = ResponseReader(
            root, on_answers=self._on_answers, on_responses=self.clocks.on_responses
        )
        try:
            self._producer = RequestProducer(root, settings)
        except BaseException:
            self._reader.close()
            raise
        # Whether requests are signed.
        self.signs = self._producer.signs

    def __enter__(self) -> RequestClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, event: RequestEvent) -> Future[Response]:
        """Send a request; its answer completes the future. Cancel the future to stop waiting.

        The future fails with DeliveryFailed if the request cannot be written, and with
        ResponsesLost if the answer cannot be read. Raises the errors of `RequestProducer.send` and
        `ResponseReader.register`.
        """
        answer = self._reader.register(event.request_id, event)
        self._send(event)
        return answer

    def submit(self, event: RequestEvent, waiter: Waiter) -> None:
        """Send a request; its answer or error completes `waiter`. Call `forget` to stop waiting.

        It creates no futures: two per request are the main cost of a busy sender.
        """
        self._reader.expect(event.request_id, waiter, event)
        self._send(event)

    def forget(self, request_id: str) -> None:
        """Stop waiting for the answer to a submitted request."""
        self._reader.forget(request_id)

    def ask(self, event: RequestEvent, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Response:
        """Send a request and return its answer. Raises NoAnswer and the errors of `send`.

        If the request needs a deadline and the coordinator's time is unknown, it asks for the time
        first.
        """
        deadline = monotonic() + timeout_ms / 1000
        if self._needs_deadline(event) and self.clocks.at(event.group_id, 0) is None:
            self._ask(time_request(event, str(uuid.uuid4())), timeout_ms, deadline)
        return self._ask(event, timeout_ms, deadline)

    def _ask(self, event: RequestEvent, timeout_ms: int, deadline: float) -> Response:
        answer = self.send(event)
        try:
            return answer.result(max(0.0, deadline - monotonic()))
        except FutureTimeout:
            answer.cancel()
            raise NoAnswer(
                f"no answer within {timeout_ms / 1000:g} s: "
                f"is a coordinator running on {self._root}?"
            ) from None

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all requests sent so far without linger; see `RequestProducer.flush`."""
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        """Write the pending requests and stop; unanswered ones fail with ResponsesLost."""
        self._producer.close()
        self._reader.close()

    def _needs_deadline(self, event: RequestEvent) -> bool:
        return self.signs and event.deadline is None and _changes_group(event)

    def _send(self, event: RequestEvent) -> None:
        if self._needs_deadline(event):
            deadline = self.clocks.at(event.group_id, since_boot_ms() + SIGNED_FOR_MS)
            event = replace(event, deadline=deadline)
        try:
            self._producer.submit(event, _RequestDelivery(self._reader, event.request_id))
        except BaseException:
            self._reader.forget(event.request_id)
            raise
        if self._reader.waiting == 1:
            self._poll_estimator.pause()
            self._producer.hasten()

    def _on_answers(self) -> None:
        self._producer.on_poll(self._poll_estimator.on_answers(time.monotonic() * 1000))


class _RequestDelivery:
    """The delivery of a request; if its write fails, its waiter fails with the error."""

    __slots__ = ("_reader", "_request_id")

    def __init__(self, reader: ResponseReader, request_id: str) -> None:
        self._reader = reader
        self._request_id = request_id

    def set_result(self, event: RequestEvent, /) -> None:
        """Do nothing: the request is written, and its answer is pending."""

    def set_exception(self, error: BaseException, /) -> None:
        self._reader.fail(self._request_id, error)
