"""Events for the user's thread, and lines for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.consumer_errors import ConsumerError
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata

T = TypeVar("T")


class RevokePartitions(Struct, frozen=True):
    """A request to run on_partitions_revoked. The member still owns these partitions."""

    partitions: tuple[TopicPartition, ...]
    reason: str


class LosePartitions(Struct, frozen=True):
    """A request to run on_partitions_lost: other members may already own these partitions.

    The generation was lost, or the consumer leaves the group during a rebalance.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str


class AssignPartitions(Struct, frozen=True):
    """A request to run on_partitions_assigned for the partitions that are new in the assignment."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int


class CallAssignor(Generic[T]):
    """A request to call `run`, which calls an assignor for its part of a rebalance.

    The assignor may be the user's code. Its result is in `result`, or its exception in `error`.
    """

    __slots__ = ("_call", "error", "result")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.result: T | None = None
        self.error: Exception | None = RuntimeError("the driver did not call run()")

    def run(self) -> None:
        """Call the assignor, and store its result or error. Raises that error."""
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error
            raise
        self.error = None


class CommitDone(Struct, frozen=True):
    """The result of an asynchronous commit; `error` None: the offsets are committed.

    `commit_id` is the id that `commit_async` returned, None for an automatic commit.
    """

    commit_id: int | None
    offsets: dict[TopicPartition, OffsetAndMetadata]
    error: ConsumerError | None


Event: TypeAlias = (
    "RevokePartitions | LosePartitions | AssignPartitions | CallAssignor[Any] | CommitDone"
)


class LogLine(Struct, frozen=True):
    """A line for the log. `at` is in absolute ms, `level` a Python logging level in lower case."""

    at: int
    level: str
    text: str
