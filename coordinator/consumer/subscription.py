"""What the user subscribed to, and what the group assigned for it: Kafka's SubscriptionState."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coordinator.consumer.positions import OffsetAndMetadata, Position, PositionState
from coordinator.consumer.protocol import TopicPartition
from coordinator.consumer.settings import AutoOffsetReset


class SubscriptionError(ValueError):
    """Something that the subscription or the assignment does not allow."""


class SubscriptionState:
    """Topics or a pattern, the group's topics, and the assigned partitions with their positions.

    `topics` are those subscribed: for a pattern, those of the catalogue that it matches.
    `group_topics` are those of the whole group, which its leader watches.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.group_topics: frozenset[str] = frozenset()
        self.assignment: dict[TopicPartition, Position] = {}
        self.assignment_id = 0
        self._subscribed = False

    # --- subscribing ----------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the group is to assign partitions."""
        return self._subscribed

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to a list of topics in place of the list before."""
        wanted = frozenset(topics)
        if not wanted or "" in wanted:
            raise SubscriptionError("subscribe() needs topic names; unsubscribe() takes them away")
        if self.pattern is not None:
            raise SubscriptionError("subscribed to a pattern already: unsubscribe() first")
        self._subscribed = True
        self.topics = wanted

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to every topic whose whole name matches; `match` says which there are."""
        if self._subscribed and self.pattern is None:
            raise SubscriptionError("subscribed to a list of topics already: unsubscribe() first")
        self._subscribed = True
        self.pattern = pattern

    def match(self, catalogue: Iterable[str]) -> None:
        """Take the topics that the pattern matches, if there is a pattern."""
        if self.pattern is not None:
            matches = self.pattern.fullmatch
            self.topics = frozenset(topic for topic in catalogue if matches(topic))

    def unsubscribe(self) -> None:
        """Forget the subscription and the assignment."""
        self._subscribed = False
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
        """Own exactly these; positions of those owned before are kept."""
        kept = self.assignment
        self.assignment = {one: kept.get(one) or Position() for one in sorted(partitions)}
        self.assignment_id += 1

    def mark_pending_revocation(self) -> None:
        """Nothing more of any partition is handed to the user: what is committed now is final."""
        for position in self.assignment.values():
            position.pending_revocation = True

    # --- positions ------------------------------------------------------------------------------

    def _position(self, partition: TopicPartition) -> Position:
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
        """Go to the earliest or the latest offset, once somebody has looked it up."""
        self._position(partition).request_reset(reset)

    def resolve_reset(self, partition: TopicPartition, reset: AutoOffsetReset, offset: int) -> None:
        """What was looked up; without effect if it is no longer wanted."""
        position = self.assignment.get(partition)
        if position is not None and position.reset is reset:
            position.seek(offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until they are resumed."""
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
        """The partitions whose position has to be looked up, and at which end."""
        return {
            one: position.reset
            for one, position in self.assignment.items()
            if position.reset is not None
        }

    def fetchable(self) -> dict[TopicPartition, int]:
        """The partitions of which rows may be handed to the user, with their positions."""
        return {
            one: position.offset
            for one, position in self.assignment.items()
            if position.is_fetchable and position.offset is not None
        }

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What an automatic commit commits: every known position."""
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
        """Start from committed offsets; returns those with none while `reset` is NONE."""
        homeless = []
        for one, offset in committed.items():
            position = self.assignment.get(one)
            if position is None or position.state is not PositionState.INITIALIZING:
                continue
            if offset is not None:
                position.seek(offset.offset)
            elif reset is AutoOffsetReset.NONE:
                homeless.append(one)
            else:
                position.request_reset(reset)
        return tuple(homeless)

    def _in_state(self, state: PositionState) -> tuple[TopicPartition, ...]:
        return tuple(one for one, p in self.assignment.items() if p.state is state)
