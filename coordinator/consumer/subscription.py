"""What the user subscribed to, and what the group assigned for it: Kafka's SubscriptionState."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from group_coordinator.coordinator.consumer.positions import (
    OffsetAndMetadata,
    PositionState,
    TopicPartitionState,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.settings import AutoOffsetReset


class SubscriptionError(ValueError):
    """A call that the present subscription or assignment does not allow."""


class SubscriptionType(Enum):
    """Who chooses the partitions: nobody, the group by topics or a pattern, or the user."""

    NONE = "none"
    AUTO_TOPICS = "topics"
    AUTO_PATTERN = "pattern"
    USER_ASSIGNED = "partitions"


class SubscriptionState:
    """Topics, a pattern or partitions, and the assigned partitions with their positions.

    `mode` changes only from and to NONE. `topics` are the topics subscribed to; for a pattern, the
    catalogue's topics that it matches. `group_topics` are those of all members, which the leader
    watches. `assignment_id` changes with every assignment, so that a fetch of offsets for an
    earlier one is recognised.
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
        """Whether the group is to assign partitions."""
        return self.mode in (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to a list of topics in place of the previous list. Raises SubscriptionError."""
        wanted = frozenset(topics)
        if not wanted or "" in wanted:
            raise SubscriptionError("subscribe() needs topic names; unsubscribe() takes them away")
        self._set_mode(SubscriptionType.AUTO_TOPICS)
        self.topics = wanted

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to every topic whose whole name matches; `match` finds them.

        Raises SubscriptionError.
        """
        self._set_mode(SubscriptionType.AUTO_PATTERN)
        self.pattern = pattern

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, whatever the group does. Raises SubscriptionError.

        A partition that stays assigned keeps its position.
        """
        wanted = tuple(partitions)
        for one in wanted:
            if not one.topic or one.partition < 0:
                raise SubscriptionError(f"there is no partition {one.partition} of {one.topic!r}")
        self._set_mode(SubscriptionType.USER_ASSIGNED)
        self.assign(wanted)

    def _set_mode(self, mode: SubscriptionType) -> None:
        if self.mode not in (SubscriptionType.NONE, mode):
            raise SubscriptionError(
                "Subscription to topics, partitions and pattern are mutually exclusive: "
                f"unsubscribe() from the {self.mode.value} first"
            )
        self.mode = mode

    def match(self, catalogue: Iterable[str]) -> None:
        """Set `topics` to those of the catalogue that the pattern, if any, matches."""
        if self.pattern is not None:
            matches = self.pattern.fullmatch
            self.topics = frozenset(topic for topic in catalogue if matches(topic))

    def unsubscribe(self) -> None:
        """Forget the subscription and the assignment."""
        self.mode = SubscriptionType.NONE
        self.topics = self.group_topics = frozenset()
        self.pattern = None
        self.assignment = {}
        self.assignment_id += 1

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics whose partition counts matter to this member."""
        return self.topics | self.group_topics

    # --- assignment -----------------------------------------------------------------------------

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, sorted."""
        return tuple(sorted(self.assignment))

    def covers(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these partitions are of topics that are subscribed to."""
        if self.pattern is not None:
            return all(self.pattern.fullmatch(one.topic) for one in partitions)
        return all(one.topic in self.topics for one in partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; a partition that stays assigned keeps its position."""
        kept = self.assignment
        self.assignment = {
            one: kept.get(one) or TopicPartitionState() for one in sorted(partitions)
        }
        self.assignment_id += 1

    def mark_pending_revocation(self) -> None:
        """Hand out no more rows of any partition, so that the positions committed are final."""
        for position in self.assignment.values():
            position.pending_revocation = True

    # --- positions ------------------------------------------------------------------------------

    def _position(self, partition: TopicPartition) -> TopicPartitionState:
        position = self.assignment.get(partition)
        if position is None:
            raise SubscriptionError(f"{partition.topic}-{partition.partition} is not assigned")
        return position

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next row for the user, None while it is not known."""
        return self._position(partition).offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go to an offset. Raises SubscriptionError for a partition that is not assigned."""
        if offset < 0:
            raise SubscriptionError(f"there is no offset {offset}")
        self._position(partition).seek(offset)

    def request_reset(self, partition: TopicPartition, reset: AutoOffsetReset) -> None:
        """Go to the earliest or latest offset, which the driver looks up (`awaiting_reset`)."""
        self._position(partition).request_reset(reset)

    def resolve_reset(self, partition: TopicPartition, reset: AutoOffsetReset, offset: int) -> None:
        """Go to the offset that was looked up, unless the reset is no longer wanted."""
        position = self.assignment.get(partition)
        if position is not None and position.reset is reset:
            position.seek(offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no rows of these partitions until they are resumed."""
        for one in partitions:
            self._position(one).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        for one in partitions:
            self._position(one).paused = False

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions."""
        return tuple(one for one, position in self.assignment.items() if position.paused)

    @property
    def initializing(self) -> tuple[TopicPartition, ...]:
        """The partitions whose committed offsets have to be fetched."""
        return self._in_state(PositionState.INITIALIZING)

    def awaiting_reset(self) -> dict[TopicPartition, AutoOffsetReset]:
        """The partitions whose position has to be looked up, with the end to look at."""
        return {
            one: position.reset
            for one, position in self.assignment.items()
            if position.reset is not None
        }

    def fetchable(self) -> dict[TopicPartition, int]:
        """The partitions whose rows may be handed to the user, with their positions."""
        return {
            one: position.offset
            for one, position in self.assignment.items()
            if position.is_fetchable and position.offset is not None
        }

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every known position: what an automatic commit commits."""
        return {
            one: OffsetAndMetadata(position.offset)
            for one, position in self.assignment.items()
            if position.offset is not None
        }

    def refresh(
        self,
        committed: Mapping[TopicPartition, OffsetAndMetadata | None],
        reset: AutoOffsetReset,
    ) -> tuple[TopicPartition, ...]:
        """Start from committed offsets; returns those without one if `reset` is NONE."""
        without_offset = []
        for one, offset in committed.items():
            position = self.assignment.get(one)
            if position is None or position.state is not PositionState.INITIALIZING:
                continue
            if offset is not None:
                position.seek(offset.offset)
            elif reset is AutoOffsetReset.NONE:
                without_offset.append(one)
            else:
                position.request_reset(reset)
        return tuple(without_offset)

    def _in_state(self, state: PositionState) -> tuple[TopicPartition, ...]:
        return tuple(one for one, p in self.assignment.items() if p.state is state)
