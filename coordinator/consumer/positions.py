"""The consumer's position in one assigned partition.

A position is the offset of the next row to hand to the user, and the offset that a commit commits.
Source: TopicPartitionState of Kafka's SubscriptionState, without its state of broker fetches.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from group_coordinator.coordinator.consumer.settings import AutoOffsetReset


class OffsetAndMetadata(Struct, frozen=True):
    """An offset to commit, or a committed offset, with its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class PositionState(Enum):
    """The state of a position: known, or how it is to be found."""

    INITIALIZING = "the committed offset has to be fetched"
    AWAIT_RESET = "the earliest or latest offset has to be looked up"
    FETCHING = "known"


class TopicPartitionState:
    """The state of one assigned partition.

    `offset` is the position, None while it is unknown. `reset` is the end to look up, if any.
    `paused`: whether the user has paused the partition. `pending_revocation`: whether it is about
    to be revoked, so that no more rows are handed out.
    """

    __slots__ = ("offset", "paused", "pending_revocation", "reset", "state")

    def __init__(self) -> None:
        self.state = PositionState.INITIALIZING
        self.offset: int | None = None
        self.reset: AutoOffsetReset | None = None
        self.paused = False
        self.pending_revocation = False

    def seek(self, offset: int) -> None:
        """Set the position, and cancel a pending reset."""
        self.state = PositionState.FETCHING
        self.offset = offset
        self.reset = None

    def request_reset(self, reset: AutoOffsetReset) -> None:
        """Make the position unknown, until the offset of this end is looked up."""
        self.state = PositionState.AWAIT_RESET
        self.offset = None
        self.reset = reset

    @property
    def is_fetchable(self) -> bool:
        """Whether rows of the partition may be handed to the user."""
        known = self.state is PositionState.FETCHING
        return known and not self.paused and not self.pending_revocation
