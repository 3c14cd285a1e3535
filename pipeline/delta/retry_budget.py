"""Retries of operations on tables, for `offsets.commit.timeout.ms`.

Without them a transient failure, such as a full disk or a store's 503, would end a node. No request
is answered during retries. A retried operation must be idempotent or have its own transaction
identifier, because a failed commit may exist nevertheless (`CommitStateUnknown`).
"""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError

from group_coordinator.pipeline.clock import back_off, monotonic
from group_coordinator.pipeline.delta.appender import FencedError
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.storage import NotFlushed
from group_coordinator.pipeline.errors import Failure, first_line

log = logging.getLogger(__name__)

_T = TypeVar("_T")
# The failures of reading and writing a table. Other errors are bugs, and not retried.
_FAILURES = (OSError, DeltaError, pa.ArrowException, Failure)
# Permanent failures. After NotFlushed a retry might succeed, but would prove nothing: the table
# must be opened again by the node's next process.
_LASTING = (
    DeltaProtocolError,
    FencedError,
    NotFlushed,
    PermissionError,
    SchemaMismatchError,
    TableReplacedError,
    UnsupportedTable,
)


class CommitTimeoutError(Failure):
    """An operation that failed for `offsets.commit.timeout.ms`; the message has the cause."""


class RetryBudget:
    """A retry budget for all steps of one piece of work, such as a batch.

    It is `timeout_ms` from the first failure on; `setting` is the name of this timeout in messages.
    """

    def __init__(self, timeout_ms: int, setting: str = "offsets.commit.timeout.ms") -> None:
        self._timeout_ms = timeout_ms
        self._setting = setting
        self._until: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether any attempt has failed so far."""
        return self._until is not None

    def run(self, what: str, step: Callable[[], _T]) -> _T:
        """Run the step until it succeeds, and return its result.

        `what` describes the step in messages, such as "write responses". Each cause is logged once.
        Raises CommitTimeoutError once the budget is used up, and permanent failures at once.
        """
        told: set[object] = set()
        for attempt in itertools.count():
            try:
                found = step()
            except _FAILURES as error:
                if isinstance(error, _LASTING) or _errno(error) == errno.EROFS:
                    raise
                self._give_up_in_time(what, error)
                # The message may name another file in each attempt.
                cause = type(error), _errno(error), getattr(error, "status", None)
                if cause not in told:
                    log.warning("could not %s, retrying: %s", what, first_line(error))
                told.add(cause)
                back_off(attempt)
            else:
                if attempt:
                    log.info("%s: succeeded in attempt %d", what, attempt + 1)
                return found
        raise AssertionError("the last attempt returns or raises")

    def _give_up_in_time(self, what: str, error: Exception) -> None:
        now = monotonic()
        if self._until is None:
            self._until = now + self._timeout_ms / 1000
        if now >= self._until:
            raise CommitTimeoutError(
                f"could not {what} within {self._timeout_ms} ms ({self._setting}): "
                f"{first_line(error)}"
            ) from error


def _errno(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None
