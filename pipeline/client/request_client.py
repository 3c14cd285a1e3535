"""A client of the coordinator: a request in, its answer out, for any number of threads.

A client is one producer and one response reader; a process needs one for all its members.

`linger.ms` is the longest that a request waits for others. A request that nothing is ahead of is
written at once. While answers are waited for, the coordinator is at work on a micro-batch, and
requests gather until shortly before the batch is expected to end (`pipeline.client.answer_rhythm`):
what is written then is in the next one. Until the batches' rhythm is known, and when the
coordinator may have found no requests of this client, they are written when answers come. (Nagle's
algorithm, RFC 896, with an answer for an acknowledgement.)
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.pipeline.client.answer_rhythm import AnswerRhythm
from group_coordinator.pipeline.client.coordinator_clocks import (
    SIGNED_FOR_MS,
    CoordinatorClocks,
    time_question,
)
from group_coordinator.pipeline.client.producer import RequestProducer
from group_coordinator.pipeline.client.response_reader import ResponseReader
from group_coordinator.pipeline.clock import monotonic, since_boot_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from group_coordinator.pipeline.client.producer_settings import ProducerSettings
    from group_coordinator.pipeline.client.response_reader import Waiter

REQUEST_TIMEOUT_MS = 30_000


class NoAnswer(Failure):
    """No answer to a request came in time."""


def _changes(event: RequestEvent) -> bool:
    """Whether a request does more than ask. A heartbeat does: its member lives on."""
    api = DECIDED.get(event.api)
    return api is not None and api.operation != "DESCRIBE"


class RequestClient:
    """Sends requests to the coordinator of a root and returns its answers.

    `clocks` are those of the coordinators that have answered. A request that is signed, and changes
    something, is decided within `SIGNED_FOR_MS`, or answered REQUEST_TIMED_OUT: nobody who copies
    its row has it decided once more. `send` and `submit` know the coordinator's time once it has
    answered about the group; a request before that has no deadline.

    Raises SchemaMismatch and LaterRelease, and NoTables where no coordinator has run yet.
    """

    def __init__(self, root: str, settings: ProducerSettings | None = None) -> None:
        self._root = root
        self._rhythm = AnswerRhythm()
        self.clocks = CoordinatorClocks()
        self._reader = ResponseReader(root, on_answers=self._answered, hear=self.clocks.hear)
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

        Raises what `RequestProducer.send` and `ResponseReader.register` raise. The future fails
        with DeliveryFailed if the request could not be written, and with ResponsesLost if the
        answer cannot be read.
        """
        answer = self._reader.register(event.request_id, event)
        self._send(event)
        return answer

    def submit(self, event: RequestEvent, waiter: Waiter) -> None:
        """Send a request; the waiter is told what the future of `send` is. See `forget`.

        For senders of so many requests that two futures each would be their main cost.
        """
        self._reader.expect(event.request_id, waiter, event)
        self._send(event)

    def forget(self, request_id: str) -> None:
        """Wait no more for the answer to a request that was submitted."""
        self._reader.forget(request_id)

    def ask(self, event: RequestEvent, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Response:
        """Send a request and return its answer. Raises NoAnswer, and what `send` raises.

        Where a deadline needs the coordinator's time, it is asked for first.
        """
        until = monotonic() + timeout_ms / 1000
        if self._needs_deadline(event) and self.clocks.at(event.group_id, 0) is None:
            self._ask(time_question(event, str(uuid.uuid4())), timeout_ms, until)
        return self._ask(event, timeout_ms, until)

    def _ask(self, event: RequestEvent, timeout_ms: int, until: float) -> Response:
        answer = self.send(event)
        try:
            return answer.result(max(0.0, until - monotonic()))
        except FutureTimeout:
            answer.cancel()
            raise NoAnswer(
                f"no answer within {timeout_ms / 1000:g} s: "
                f"is a coordinator running on {self._root}?"
            ) from None

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write what was sent without lingering; see `RequestProducer.flush`."""
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        """Write what was sent, and stop; futures without an answer fail with ResponsesLost."""
        self._producer.close()
        self._reader.close()

    def _needs_deadline(self, event: RequestEvent) -> bool:
        return self.signs and event.deadline is None and _changes(event)

    def _send(self, event: RequestEvent) -> None:
        if self._needs_deadline(event):
            until = self.clocks.at(event.group_id, since_boot_ms() + SIGNED_FOR_MS)
            event = replace(event, deadline=until)
        try:
            self._producer.submit(event, _Sent(self._reader, event.request_id))
        except BaseException:
            self._reader.forget(event.request_id)
            raise
        if self._reader.waiting == 1:
            self._rhythm.pause()
            self._producer.hasten()

    def _answered(self) -> None:
        """Answers have come: the coordinator looks for requests now, and after the next ones."""
        self._producer.meet(self._rhythm.answered(time.monotonic() * 1000))


class _Sent:
    """A request on its way to the table: what was not written is not waited for."""

    __slots__ = ("_reader", "_request_id")

    def __init__(self, reader: ResponseReader, request_id: str) -> None:
        self._reader = reader
        self._request_id = request_id

    def set_result(self, event: RequestEvent, /) -> None:
        """Go on waiting for the answer."""

    def set_exception(self, error: BaseException, /) -> None:
        """Tell who waits for the answer."""
        self._reader.fail(self._request_id, error)
