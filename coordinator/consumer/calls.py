"""Calls that last longer than one request: sent again after a backoff, until their deadline.

Source: the loops of Kafka's ConsumerCoordinator.commitOffsetsSync and fetchCommittedOffsets, and
the commits that its commitOffsetsAsync lets wait for the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.consumer.errors import ConsumerError, CoordinatorTimeoutError
from group_coordinator.coordinator.consumer.lookup import CoordinatorLookup

T = TypeVar("T")


class Operation(Generic[T]):
    """The outcome of a call: not done, or done with a value or an error."""

    __slots__ = ("_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: ConsumerError | None = None
        self._value: T | None = None

    def succeed(self, value: T) -> None:
        """End with a value; without effect once it is done."""
        if not self.done:
            self.done = True
            self._value = value

    def fail(self, error: ConsumerError) -> None:
        """End with an error; without effect once it is done."""
        if not self.done:
            self.done = True
            self.error = error

    def result(self) -> T:
        """The value. Raises the error, or RuntimeError while it is not done."""
        if self.error is not None:
            raise self.error
        if not self.done:
            raise RuntimeError("the operation is not done yet")
        return self._value  # type: ignore[return-value]


class Call:
    """One call: how to send it, and how far it is.

    `attempt` sends it, `fail` ends it with an error. `tries_again` False: one failed attempt ends
    it. `deadline` in absolute ms, None for no limit.
    """

    __slots__ = ("attempt", "attempts", "deadline", "fail", "retry_at", "tries_again", "what")

    def __init__(
        self,
        what: str,
        attempt: Callable[[int], None],
        fail: Callable[[int, ConsumerError], None],
        deadline: int | None,
        tries_again: bool,
        now: int,
    ) -> None:
        self.what = what
        self.attempt = attempt
        self.fail = fail
        self.deadline = deadline
        self.tries_again = tries_again
        self.attempts = 0
        # None while its request is on its way.
        self.retry_at: int | None = now


class Calls:
    """The calls that have not ended, in the order in which they were made."""

    def __init__(self, lookup: CoordinatorLookup, backoff: Backoff) -> None:
        self._lookup = lookup
        self._backoff = backoff
        self._calls: list[Call] = []
        lookup.on_found.append(self.tick)
        lookup.on_failed.append(self._on_lookup_failed)

    def start(self, now: int, call: Call) -> None:
        """Start a call: it is sent at once if the coordinator is known, else when it is found."""
        self._calls.append(call)
        self.tick(now)

    def end(self, call: Call) -> None:
        """Forget the call: it has ended."""
        if call in self._calls:
            self._calls.remove(call)

    def failed(self, now: int, call: Call, error: ConsumerError) -> None:
        """An attempt failed: try again after the backoff, or end the call with the error."""
        if call not in self._calls:
            return
        if call.tries_again and error.retriable:
            call.retry_at = now + self._backoff(call.attempts)
            call.attempts += 1
        else:
            self.end(call)
            call.fail(now, error)

    def tick(self, now: int) -> None:
        """End the calls past their deadline, and send those that are due."""
        for call in list(self._calls):
            if call not in self._calls:
                continue
            if call.deadline is not None and now >= call.deadline:
                self.end(call)
                call.fail(
                    now,
                    CoordinatorTimeoutError(
                        f"{call.what} did not succeed in time (default.api.timeout.ms, or the "
                        "timeout that was given): is the coordinator running?"
                    ),
                )
            elif call.retry_at is not None and self._lookup.node is None:
                self._lookup.want()
            elif call.retry_at is not None and now >= call.retry_at:
                call.retry_at = None
                call.attempt(now)

    @property
    def deadline(self) -> int | None:
        """When `tick` has something to do, absolute ms; None while nothing is timed."""
        times = [call.deadline for call in self._calls if call.deadline is not None]
        if self._lookup.node is not None:
            times += [call.retry_at for call in self._calls if call.retry_at is not None]
        return min(times, default=None)

    def _on_lookup_failed(self, now: int, error: ConsumerError) -> None:
        for call in list(self._calls):
            if call.retry_at is not None and not (call.tries_again and error.retriable):
                self.end(call)
                call.fail(now, error)
