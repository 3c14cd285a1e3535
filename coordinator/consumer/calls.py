"""Calls that may need several requests: retried after a backoff, until their deadline.

`Queries` are the read-only calls, OffsetFetch and DescribeGroups. Source: Kafka's
ConsumerCoordinator (commitOffsetsSync, commitOffsetsAsync, fetchCommittedOffsets,
OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_errors import (
    ON_FETCHED_PARTITION,
    ON_QUERY,
    ConsumerError,
    CoordinatorTimeoutError,
    Reaction,
    RetriableError,
    disconnected_error,
    error_name,
    fatal_error,
    retriable_error,
)
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.coordinator_requests import (
    CoordinatorLookup,
    InFlightRequests,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition, group
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    Response,
)

T = TypeVar("T")
# Committed offsets; None for a partition without one.
Committed = dict[TopicPartition, "OffsetAndMetadata | None"]
_OFFSET_FETCH = "offset_fetch"


class Operation(Generic[T]):
    """The outcome of a call: pending, or done with a value or an error."""

    __slots__ = ("_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: ConsumerError | None = None
        self._value: T | None = None

    def succeed(self, value: T) -> None:
        """Complete the operation with a value; do nothing if it is already done."""
        if not self.done:
            self.done = True
            self._value = value

    def fail(self, error: ConsumerError) -> None:
        """Complete the operation with an error; do nothing if it is already done."""
        if not self.done:
            self.done = True
            self.error = error

    def result(self) -> T:
        """Return the value. Raises the error, or RuntimeError while the operation is pending."""
        if self.error is not None:
            raise self.error
        if not self.done:
            raise RuntimeError("the operation is not done yet")
        return self._value  # type: ignore[return-value]


class PendingCall(Struct, eq=False):
    """A call that has not ended, with its retry state.

    `attempt` sends the request, `fail` ends the call with an error; both take the time (ms). `what`
    names the call in error messages. `retries` False: the first failed attempt ends it. `deadline`
    is in absolute ms, None for no limit.
    """

    what: str
    attempt: Callable[[int], None]
    fail: Callable[[int, ConsumerError], None]
    deadline: int | None
    retries: bool
    # The time of the next attempt, absolute ms. None while a request is in flight, and for a call
    # that sends none (a synchronous commit without offsets).
    retry_at: int | None
    attempts: int = 0


class PendingCalls:
    """The pending calls, in the order in which they were made."""

    def __init__(self, lookup: CoordinatorLookup, backoff: ExponentialBackoff) -> None:
        self._lookup = lookup
        self._backoff = backoff
        self._calls: list[PendingCall] = []
        lookup.on_found.append(self.tick)
        lookup.on_failed.append(self._on_lookup_failed)

    def start(self, now: int, call: PendingCall) -> None:
        """Add a call, and send it as soon as the coordinator is known."""
        self._calls.append(call)
        self.tick(now)

    def end(self, call: PendingCall) -> None:
        """Remove a call."""
        if call in self._calls:
            self._calls.remove(call)

    def failed(self, now: int, call: PendingCall, error: ConsumerError) -> None:
        """Handle a failed attempt: schedule a retry after the backoff, or fail the call."""
        if call not in self._calls:
            return
        if call.retries and error.retriable:
            call.retry_at = now + self._backoff(call.attempts)
            call.attempts += 1
        else:
            self.end(call)
            call.fail(now, error)

    def tick(self, now: int) -> None:
        """Fail the calls past their deadline with CoordinatorTimeoutError, and send due calls."""
        for call in list(self._calls):
            if call not in self._calls:
                continue
            if call.deadline is not None and now >= call.deadline:
                self.end(call)
                call.fail(
                    now,
                    CoordinatorTimeoutError(
                        f"{call.what} did not succeed within its timeout (the argument, or "
                        "default.api.timeout.ms): is the coordinator running?"
                    ),
                )
            elif call.retry_at is not None and self._lookup.node is None:
                self._lookup.request_lookup()
            elif call.retry_at is not None and now >= call.retry_at:
                call.retry_at = None
                call.attempt(now)

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) at which `tick` is due; None if no timer runs."""
        times = [call.deadline for call in self._calls if call.deadline is not None]
        if self._lookup.node is not None:
            times += [call.retry_at for call in self._calls if call.retry_at is not None]
        return min(times, default=None)

    def _on_lookup_failed(self, now: int, error: ConsumerError) -> None:
        for call in list(self._calls):
            if call.retry_at is not None and not (call.retries and error.retriable):
                self.end(call)
                call.fail(now, error)


class Queries(Struct, eq=False):
    """The sender of read-only requests."""

    _settings: ConsumerSettings
    _requests: InFlightRequests
    _lookup: CoordinatorLookup
    _calls: PendingCalls

    def fetch_committed_offsets(
        self, now: int, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Operation[Committed]:
        """Fetch the group's committed offsets of these partitions; return the operation.

        Retriable failures are retried for `timeout_ms`, None for no limit.
        """
        requested = tuple(sorted(set(partitions)))
        if requested:
            what = f"fetching the committed offsets of group {self._settings.group_id!r}"
            read = partial(_read, self._settings)
            topics = [OffsetFetchTopic(t.topic, tuple(t.partitions)) for t in group(requested)]
            body = OffsetFetchRequest(tuple(topics), require_stable=True)
            return self.send(now, _OFFSET_FETCH, body, read, what, timeout_ms)
        operation: Operation[Committed] = Operation()
        operation.succeed({})
        return operation

    def send(
        self,
        now: int,
        api: str,
        body: Struct,
        read: Callable[[Any], T],
        what: str,
        timeout_ms: int | None = None,
    ) -> Operation[T]:
        """Send a request; return its operation, which has the result of `read` as its value.

        Retriable failures are retried for `timeout_ms`, None for no limit. `read` is called with
        the body of an answer with code NONE, and may raise ConsumerError; the request is retried if
        that is retriable. `what` names the query in error messages.
        """
        operation: Operation[T] = Operation()

        def on_answer(at: int, response: Response | None) -> None:
            code = ErrorCode.NONE if response is None else response.error_code
            try:
                value = self._value(api, response, read)
            except ConsumerError as error:
                self._calls.failed(at, call, error)
            else:
                self._calls.end(call)
                operation.succeed(value)
            if ON_QUERY.get(code) is Reaction.FIND_COORDINATOR:
                self._lookup.mark_unknown(at, f"{api} answered {error_name(code)}")

        call = PendingCall(
            what,
            lambda at: self._requests.send(at, api, body, on_answer),
            lambda _, error: operation.fail(error),
            None if timeout_ms is None else now + timeout_ms,
            retries=True,
            retry_at=now,
        )
        self._calls.start(now, call)
        return operation

    def _value(self, api: str, response: Response | None, read: Callable[[Any], T]) -> T:
        if response is None:
            raise disconnected_error(api)
        code, body = response.error_code, getattr(response, api)
        if code == ErrorCode.NONE and body is not None:
            return read(body)
        if ON_QUERY.get(code) in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            raise retriable_error(api, code)
        raise fatal_error(api, code, self._settings, response.error_message)


def _read(settings: ConsumerSettings, body: OffsetFetchResponse) -> Committed:
    """Return the committed offsets of an answer.

    Raises ConsumerError for a partition's error code, RetriableError if offsets are not stable yet.
    """
    unstable = False
    for topic in body.topics:
        for partition in topic.partitions:
            code = partition.error_code
            if ON_FETCHED_PARTITION.get(code) is Reaction.RETRY:
                unstable = True
            elif code != ErrorCode.NONE:
                where = f"{topic.name}-{partition.partition_index}"
                raise fatal_error(_OFFSET_FETCH, code, settings, where)
    if unstable:
        raise RetriableError(
            f"{_OFFSET_FETCH}: offsets are not stable yet", ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    return _committed(body)


def _committed(body: OffsetFetchResponse) -> Committed:
    return {
        TopicPartition(topic.name, p.partition_index): None
        if p.committed_offset < 0
        else OffsetAndMetadata(p.committed_offset, p.metadata, p.committed_leader_epoch)
        for topic in body.topics
        for p in topic.partitions
    }
