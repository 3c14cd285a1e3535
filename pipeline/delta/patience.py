"""Doing again what failed for a cause that may pass, for so long as Kafka waits for an append.

One file too many that is open, a disk that is full for a moment or a store that answers 503 would
else end a node, and all of its groups would wait for the next one. Nothing is answered meanwhile.

What is done again has a transaction of its own in the table, or changes nothing if it is done
twice: a commit that failed may be there all the same (`CommitStateUnknown`).
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
from group_coordinator.pipeline.delta.epoch import FencedError
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.store import NotFlushed
from group_coordinator.pipeline.errors import Failure, first_line

log = logging.getLogger(__name__)

_T = TypeVar("_T")
# How reading and writing a table fails. Everything else is a bug, and is not done again.
_FAILURES = (OSError, DeltaError, pa.ArrowException, Failure)
# A second attempt would fail as the first one did. After NotFlushed it might not, and that would
# say nothing: the table is to be opened anew, by the node's next start.
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
    """What failed again and again for `offsets.commit.timeout.ms`; the message says why."""


class Patience:
    """Does the steps of one piece of work, such as a batch, each until it succeeds.

    All of them together have `timeout_ms` (offsets.commit.timeout.ms) from the first failure on.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._until: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether any attempt has failed so far."""
        return self._until is not None

    def until_done(self, what: str, step: Callable[[], _T]) -> _T:
        """Return what the step returns; `what` it does, such as "write responses".

        Each cause is logged once. Raises CommitTimeoutError once the time is over, and at once what
        the step raises for a cause that stays.
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
                    log.warning("could not %s, and tries again: %s", what, first_line(error))
                told.add(cause)
                back_off(attempt)
            else:
                if attempt:
                    log.info("could %s in attempt %d", what, attempt + 1)
                return found
        raise AssertionError("the last attempt returns or raises")

    def _give_up_in_time(self, what: str, error: Exception) -> None:
        """Raise CommitTimeoutError if the time is over, which begins with the first failure."""
        now = monotonic()
        if self._until is None:
            self._until = now + self._timeout_ms / 1000
        if now >= self._until:
            raise CommitTimeoutError(
                f"could not {what} for {self._timeout_ms} ms (offsets.commit.timeout.ms): "
                f"{first_line(error)}"
            ) from error


def _errno(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None
