"""The interface of assignors, and the assignors `range` and `roundrobin`, which keep no state.

Range: each member gets a run of consecutive partitions of each topic. Topics with the same
subscribers and number of partitions are divided alike, so that partition n of each goes to the same
member.

Round-robin: all partitions in order are assigned to the members in turn. A member that does not
subscribe to a partition's topic is skipped for it.

Source: ConsumerPartitionAssignor, AbstractPartitionAssignor, RangeAssignor, RoundRobinAssignor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from group_coordinator.coordinator.consumer.member_state import ConsumerGroupMetadata
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)


class RebalanceProtocol(StrEnum):
    """The handling of owned partitions in a rebalance (KIP-429).

    EAGER: a member revokes all of them before it joins. COOPERATIVE: a member keeps them, revokes
    only those that the leader takes away, and then joins again.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class ConsumerPartitionAssignor(ABC):
    """The interface of an assignor. Each member has its own instance.

    `name` is the protocol name in JoinGroup. `protocols` are the supported rebalance protocols, the
    preferred one first. `poll` calls all methods and raises their exceptions; heartbeats continue
    meanwhile. Racks (KIP-881) are ignored, because no partition has replicas.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Sequence[str]) -> bytes | None:  # noqa: ARG002
        """Return user data for the member's subscription, or None. Called before each join."""
        return None

    @abstractmethod
    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Return each member's assignment by member id. Only the leader's assignor is called.

        `counts` are the numbers of partitions of the topics that exist; `subscriptions` maps each
        member id to its member's subscription. Kafka's own assignors skip topics that do not exist
        or have no subscribers, and do not depend on the order of both mappings.
        """
        ...

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027
        """Handle this member's new assignment.

        Called after partitions were revoked, and before the new ones are assigned.
        """


def assignments(by_member: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """Return each member's partitions as its assignment, without user data."""
    return {member_id: Assignment(tuple(partitions)) for member_id, partitions in by_member.items()}


def subscribed_counts(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, int]:
    """Return the topics to assign with their numbers of partitions, sorted by name."""
    topics = {topic for member in members.values() for topic in member.topics}
    return {
        topic: count for topic in sorted(topics) if (count := partition_counts.get(topic, 0)) > 0
    }


def in_member_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids: static members by instance id, then dynamic ones by member id.

    So a static member keeps its place when it restarts with a new member id (KIP-345).
    """

    def sort_key(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=sort_key)


class RangeAssignor(ConsumerPartitionAssignor):
    """Kafka's assignor `range`, its default."""

    name = "range"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide each topic; the first members get one more if the division leaves a remainder."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        topic_counts = subscribed_counts(counts, subscriptions)
        subscribers: dict[str, list[str]] = {topic: [] for topic in topic_counts}
        for member_id in in_member_order(subscriptions):
            for topic in topic_counts.keys() & set(subscriptions[member_id].topics):
                subscribers[topic].append(member_id)
        for topic, count in topic_counts.items():
            share, extra = divmod(count, len(subscribers[topic]))
            start = 0
            for position, member_id in enumerate(subscribers[topic]):
                end = start + share + (position < extra)
                assigned[member_id].extend(TopicPartition(topic, n) for n in range(start, end))
                start = end
        return assignments(assigned)


class RoundRobinAssignor(ConsumerPartitionAssignor):
    """Kafka's assignor `roundrobin`."""

    name = "roundrobin"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Assign the partitions of all topics, sorted by topic and number, in turn."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        topic_counts = subscribed_counts(counts, subscriptions)
        members = in_member_order(subscriptions)
        # The places of a topic's subscribers in the circle, ascending.
        positions: dict[str, list[int]] = {topic: [] for topic in topic_counts}
        for position, member_id in enumerate(members):
            for topic in topic_counts.keys() & set(subscriptions[member_id].topics):
                positions[topic].append(position)
        turn = 0
        for topic, count in topic_counts.items():
            subscribers = positions[topic]
            for number in range(count):
                # Beyond the last subscriber the circle begins again with the first.
                position = subscribers[bisect_left(subscribers, turn) % len(subscribers)]
                assigned[members[position]].append(TopicPartition(topic, number))
                turn = position + 1
        return assignments(assigned)
