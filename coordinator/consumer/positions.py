"""A member's position in one assigned partition.

Source: TopicPartitionState of Kafka's SubscriptionState, without what concerns fetching from
brokers. A position is the offset of the next row to hand to the user, which is what is committed.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from group_coordinator.coordinator.consumer.settings import AutoOffsetReset


class OffsetAndMetadata(Struct, frozen=True):
    """An offset to commit, or committed, with its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class PositionState(Enum):
    """Whether a position is known, and else how it is found."""

    INITIALIZING = "the committed offset has to be fetched"
    AWAIT_RESET = "the earliest or latest offset has to be looked up"
    FETCHING = "known"


class TopicPartitionState:
    """One assigned partition: its position, whether it is paused or about to be revoked."""

    __slots__ = ("offset", "paused", "pending_revocation", "reset", "state")

    def __init__(self) -> None:
        self.state = PositionState.INITIALIZING
        self.offset: int | None = None
        self.reset: AutoOffsetReset | None = None
        self.paused = False
        self.pending_revocation = False

    def seek(self, offset: int) -> None:
        """Set the position."""
        self.state = PositionState.FETCHING
        self.offset = offset
        self.reset = None

    def request_reset(self, reset: AutoOffsetReset) -> None:
        """Have the position looked up at this end."""
        self.state = PositionState.AWAIT_RESET
        self.offset = None
        self.reset = reset

    @property
    def is_fetchable(self) -> bool:
        """Whether rows of the partition may be handed to the user."""
        known = self.state is PositionState.FETCHING
        return known and not self.paused and not self.pending_revocation
