"""The user's subscription, and the assigned partitions with their positions.

A position is the offset of the next row for the user, and the offset that a commit commits. Source:
Kafka's SubscriptionState, without its state of broker fetches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct

from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.protocol import TopicPartition


class OffsetAndMetadata(Struct, frozen=True):
    """An offset to commit, or a committed offset, with its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class PositionState(Enum):
    """Whether a position is known, or how it is to be found."""

    INITIALIZING = "the committed offset has to be fetched"
    AWAIT_RESET = "the earliest or latest offset has to be looked up"
    FETCHING = "known"


class TopicPartitionState(Struct, eq=False):
    """The state of one assigned partition.

    `offset` is the position, None while it is unknown. `reset` is the end of the log to look up,
    None if the position needs no lookup. `paused`: whether the user has paused the partition.
    `pending_revocation`: whether it is about to be revoked, so that no more rows are handed out.
    """

    state: PositionState = PositionState.INITIALIZING
    offset: int | None = None
    reset: AutoOffsetReset | None = None
    paused: bool = False
    pending_revocation: bool = False

    def seek(self, offset: int) -> None:
        """Set the position, and cancel a pending reset."""
        self.state = PositionState.FETCHING
        self.offset = offset
        self.reset = None

    def request_reset(self, reset: AutoOffsetReset) -> None:
        """Make the position unknown, until the offset of this end of the log is looked up."""
        self.state = PositionState.AWAIT_RESET
        self.offset = None
        self.reset = reset

    @property
    def is_fetchable(self) -> bool:
        """Whether rows of the partition may be handed to the user."""
        is_known = self.state is PositionState.FETCHING
        return is_known and not self.paused and not self.pending_revocation


class SubscriptionError(ValueError):
    """A call that the present subscription or assignment does not allow."""


class SubscriptionType(Enum):
    """The source of the assignment: none, the group (for topics or a pattern), or the user."""

    NONE = "none"
    AUTO_TOPICS = "topics"
    AUTO_PATTERN = "pattern"
    USER_ASSIGNED = "partitions"


class SubscriptionState:
    """The subscription, and the assigned partitions with their positions.

    `mode` changes only from and to NONE. `topics` are the subscribed topics; for a pattern, the
    catalogue's topics that it matches. `group_topics` are the topics of all members, which the
    leader watches. `assignment_id` changes with every assignment, to detect an offset fetch for an
    earlier one.
    """

    def __init__(self) -> None:
        self.mode = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.group_topics: frozenset[str] = frozenset()
        self.assignment: dict[TopicPartition, TopicPartitionState] = {}
        self.assignment_id = 0

    # --- subscribing ----------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a subscription to topics or a pattern, so that the group assigns."""
        return self.mode in (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics in place of the previous ones. Raises SubscriptionError."""
        names = frozenset(topics)
        if not names or "" in names:
            raise SubscriptionError(
                "subscribe() needs topic names; unsubscribe() removes the subscription"
            )
        self._set_mode(SubscriptionType.AUTO_TOPICS)
        self.topics = names

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics that the pattern matches completely; `match` sets them.

        Raises SubscriptionError.
        """
        self._set_mode(SubscriptionType.AUTO_PATTERN)
        self.pattern = pattern

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, independently of the group.

        A partition that stays assigned keeps its position. Raises SubscriptionError.
        """
        assigned = tuple(partitions)
        for partition in assigned:
            if not partition.topic or partition.partition < 0:
                raise SubscriptionError(
                    f"invalid partition {partition.partition} of topic {partition.topic!r}"
                )
        self._set_mode(SubscriptionType.USER_ASSIGNED)
        self.assign(assigned)

    def _set_mode(self, mode: SubscriptionType) -> None:
        if self.mode not in (SubscriptionType.NONE, mode):
            raise SubscriptionError(
                "Subscription to topics, partitions and pattern are mutually exclusive: "
                f"unsubscribe() from the {self.mode.value} first"
            )
        self.mode = mode

    def match(self, catalogue: Iterable[str]) -> None:
        """Set `topics` to the catalogue's topics that the pattern matches, if there is one."""
        if self.pattern is not None:
            fullmatch = self.pattern.fullmatch
            self.topics = frozenset(topic for topic in catalogue if fullmatch(topic))

    def unsubscribe(self) -> None:
        """Remove the subscription and the assignment."""
        self.mode = SubscriptionType.NONE
        self.topics = self.group_topics = frozenset()
        self.pattern = None
        self.assignment = {}
        self.assignment_id += 1

    @property
    def watched_topics(self) -> frozenset[str]:
        """The subscribed topics, and for a leader those of the group."""
        return self.topics | self.group_topics

    # --- assignment -----------------------------------------------------------------------------

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, sorted."""
        return tuple(sorted(self.assignment))

    def covers(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these partitions belong to subscribed topics."""
        if self.pattern is not None:
            return all(self.pattern.fullmatch(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; a partition that stays assigned keeps its position."""
        previous = self.assignment
        self.assignment = {
            partition: previous.get(partition) or TopicPartitionState()
            for partition in sorted(partitions)
        }
        self.assignment_id += 1

    def mark_pending_revocation(self) -> None:
        """Stop handing out rows of all partitions, so that the committed positions are final."""
        for position in self.assignment.values():
            position.pending_revocation = True

    # --- positions ------------------------------------------------------------------------------

    def _position(self, partition: TopicPartition) -> TopicPartitionState:
        position = self.assignment.get(partition)
        if position is None:
            raise SubscriptionError(f"{partition.topic}-{partition.partition} is not assigned")
        return position

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next row for the user, None while it is unknown.

        Raises SubscriptionError for a partition that is not assigned.
        """
        return self._position(partition).offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position.

        Raises SubscriptionError for a negative offset or a partition that is not assigned.
        """
        if offset < 0:
            raise SubscriptionError(f"invalid offset {offset}: it must not be negative")
        self._position(partition).seek(offset)

    def request_reset(self, partition: TopicPartition, reset: AutoOffsetReset) -> None:
        """Request a reset to the earliest or latest offset, which the driver looks up.

        Raises SubscriptionError for a partition that is not assigned.
        """
        self._position(partition).request_reset(reset)

    def resolve_reset(self, partition: TopicPartition, reset: AutoOffsetReset, offset: int) -> None:
        """Set the position to the offset that was looked up, if the reset is still pending."""
        position = self.assignment.get(partition)
        if position is not None and position.reset is reset:
            position.seek(offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop handing out rows of these partitions until `resume`.

        Raises SubscriptionError for a partition that is not assigned.
        """
        for partition in partitions:
            self._position(partition).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. Raises SubscriptionError for a partition that is not assigned."""
        for partition in partitions:
            self._position(partition).paused = False

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions."""
        return tuple(
            partition for partition, position in self.assignment.items() if position.paused
        )

    @property
    def initializing(self) -> tuple[TopicPartition, ...]:
        """The partitions with a position that is yet to be set to the committed offset."""
        return self._in_state(PositionState.INITIALIZING)

    def awaiting_reset(self) -> dict[TopicPartition, AutoOffsetReset]:
        """Return the partitions with a pending reset, and the end of the log to look up."""
        return {
            partition: position.reset
            for partition, position in self.assignment.items()
            if position.reset is not None
        }

    def fetchable(self) -> dict[TopicPartition, int]:
        """Return the positions of the partitions with rows that may be handed to the user."""
        return {
            partition: position.offset
            for partition, position in self.assignment.items()
            if position.is_fetchable and position.offset is not None
        }

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all known positions, which an automatic commit commits."""
        return {
            partition: OffsetAndMetadata(position.offset)
            for partition, position in self.assignment.items()
            if position.offset is not None
        }

    def refresh(
        self,
        committed: Mapping[TopicPartition, OffsetAndMetadata | None],
        reset: AutoOffsetReset,
    ) -> tuple[TopicPartition, ...]:
        """Set initializing positions to committed offsets; request `reset` for those without one.

        If `reset` is NONE, return the partitions without a committed offset.
        """
        without_offset = []
        for partition, offset in committed.items():
            position = self.assignment.get(partition)
            if position is None or position.state is not PositionState.INITIALIZING:
                continue
            if offset is not None:
                position.seek(offset.offset)
            elif reset is AutoOffsetReset.NONE:
                without_offset.append(partition)
            else:
                position.request_reset(reset)
        return tuple(without_offset)

    def _in_state(self, state: PositionState) -> tuple[TopicPartition, ...]:
        return tuple(partition for partition, p in self.assignment.items() if p.state is state)
