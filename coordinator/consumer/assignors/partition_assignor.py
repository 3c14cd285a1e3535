"""The interface of assignors. Source: ConsumerPartitionAssignor, AbstractPartitionAssignor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from group_coordinator.coordinator.consumer.member_state import ConsumerGroupMetadata
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)


class RebalanceProtocol(StrEnum):
    """What members do with their partitions in a rebalance (KIP-429).

    EAGER: a member gives up all of them before it joins. COOPERATIVE: a member keeps all of them,
    gives up only those that the leader takes away, and then joins again.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class ConsumerPartitionAssignor(ABC):
    """Divides partitions among members; each member has an instance of its own.

    `name` is the protocol name in JoinGroup. `protocols` are the rebalance protocols that it
    supports, the preferred one first. All methods are called within `poll`, which raises what they
    raise, and heartbeats go on meanwhile.

    Racks (KIP-881) are ignored: Kafka matches a member's rack with those of a partition's replicas,
    and here no partition has replicas.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Sequence[str]) -> bytes | None:  # noqa: ARG002
        """Return bytes of its own for a member's subscription, None for none. Before each join."""
        return None

    @abstractmethod
    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Return each member's partitions and user data, by member id; only the leader is asked.

        `counts` are the numbers of partitions of the topics that exist; `subscriptions` are those
        of all members, by member id. Kafka's own skip topics that do not exist and topics without
        subscribers, and the order of both mappings makes no difference.
        """
        ...

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027
        """Take note of what this member was assigned.

        Comes after the partitions that go were revoked, and before the new ones are assigned.
        """


def assignments(divided: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """Return each member's partitions as its assignment, without user data."""
    return {member_id: Assignment(tuple(each)) for member_id, each in divided.items()}


def subscribed_counts(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, int]:
    """The topics to assign with their numbers of partitions, sorted by name."""
    topics = {topic for member in members.values() for topic in member.topics}
    return {topic: n for topic in sorted(topics) if (n := partition_counts.get(topic, 0)) > 0}


def in_member_order(members: Mapping[str, Subscription]) -> list[str]:
    """The member ids: static members first by instance id, then dynamic ones by member id.

    A static member's instance id outlives its member id, so it keeps its place when it restarts
    (KIP-345).
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)
