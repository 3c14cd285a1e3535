"""Calls that may need several requests: retried after a backoff, until their deadline.

Source: Kafka's ConsumerCoordinator (commitOffsetsSync, commitOffsetsAsync, fetchCommittedOffsets).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    CoordinatorTimeoutError,
)
from group_coordinator.coordinator.consumer.coordinator_requests import CoordinatorLookup

T = TypeVar("T")


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


class PendingCall:
    """A call that has not ended, with its retry state.

    `attempt` sends the request, `fail` ends the call with an error; both take the time (ms). `what`
    names the call in error messages. `retries` False: the first failed attempt ends it. `deadline`
    is in absolute ms, None for no limit.
    """

    __slots__ = ("attempt", "attempts", "deadline", "fail", "retries", "retry_at", "what")

    def __init__(
        self,
        what: str,
        attempt: Callable[[int], None],
        fail: Callable[[int, ConsumerError], None],
        deadline: int | None,
        retries: bool,
        now: int,
    ) -> None:
        self.what = what
        self.attempt = attempt
        self.fail = fail
        self.deadline = deadline
        self.retries = retries
        self.attempts = 0
        # The time of the next attempt, absolute ms. None while a request is in flight, and for a
        # call that sends none (a synchronous commit without offsets).
        self.retry_at: int | None = now


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
