"""Events for the user's thread, in order, and lines for a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.errors import ConsumerError
from group_coordinator.coordinator.consumer.positions import OffsetAndMetadata
from group_coordinator.coordinator.consumer.protocol import TopicPartition

T = TypeVar("T")


class RevokePartitions(Struct, frozen=True):
    """Run the listener's on_partitions_revoked: the member still owns these and gives them up."""

    partitions: tuple[TopicPartition, ...]
    reason: str


class LosePartitions(Struct, frozen=True):
    """Run on_partitions_lost: the generation was lost, others may already own these."""

    partitions: tuple[TopicPartition, ...]
    reason: str


class AssignPartitions(Struct, frozen=True):
    """Run on_partitions_assigned: these are new; the coordinator's `assignment` has all."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int


class CallAssignor(Generic[T]):
    """Call `run`: an assignor, which may be the user's own, then does its part of a rebalance.

    What it returned is `result`; what it raised, `run` raises too, and it is `error`.
    """

    __slots__ = ("_call", "error", "result")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.result: T | None = None
        self.error: Exception | None = RuntimeError("the driver did not call run()")

    def run(self) -> None:
        """Call the assignor; raises what it raises."""
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error
            raise
        self.error = None


class CommitDone(Struct, frozen=True):
    """An asynchronous commit ended; `error` None: the offsets are committed.

    `commit_id` is what `commit_async` returned, None for an automatic commit.
    """

    commit_id: int | None
    offsets: dict[TopicPartition, OffsetAndMetadata]
    error: ConsumerError | None


Event: TypeAlias = (
    "RevokePartitions | LosePartitions | AssignPartitions | CallAssignor[Any] | CommitDone"
)


class Note(Struct, frozen=True):
    """A line for the log. `level` is a name of Python's logging levels, in lower case."""

    at: int
    level: str
    text: str
