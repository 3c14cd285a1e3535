"""What an assignor is. Source: ConsumerPartitionAssignor, AbstractPartitionAssignor (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from coordinator.consumer.protocol import Subscription, TopicPartition


class RebalanceProtocol(str, Enum):
    """What members do with their partitions in a rebalance.

    EAGER: all are given up before the join. COOPERATIVE: all are kept, and only those that the
    leader takes away are given up, after which the member joins again.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Assignor(Protocol):
    """Divides partitions among members. It keeps no state: what it needs to know it is told.

    Racks (KIP-881) are not looked at: Kafka matches a member's rack with those of a partition's
    replicas, and here no partition has replicas.
    """

    @property
    def name(self) -> str:
        """The name that members and the coordinator know it by."""
        ...

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols it can be used with, the preferred one first."""
        ...

    @property
    def version(self) -> int:
        """The version of its user data and of its way to assign (0 for all of Kafka's)."""
        ...

    def user_data(
        self, topics: Sequence[str], owned: Sequence[TopicPartition] | None, generation: int
    ) -> bytes | None:
        """Return what a member sends of its own in its subscription, None for nothing.

        `owned` is the last assignment that the member was given, though an eager member has given
        it up by now; None if it never had one. `generation` is the one of that assignment, -1 if
        there was none.
        """
        ...

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member of `members`, by member id.

        `partition_counts` are the topics that exist: others that are subscribed are passed over,
        and so are those that nobody subscribes. The order of both mappings makes no difference.
        """
        ...


class PlainAssignor:
    """An eager assignor that looks at subscriptions alone: members send nothing of their own."""

    protocols = (RebalanceProtocol.EAGER,)
    version = 0

    def user_data(
        self,
        topics: Sequence[str],  # noqa: ARG002
        owned: Sequence[TopicPartition] | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
    ) -> None:
        """Nothing."""
        return


def subscribed_counts(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, int]:
    """The topics to assign with their numbers of partitions, sorted by name."""
    topics = {topic for member in members.values() for topic in member.topics}
    return {topic: n for topic in sorted(topics) if (n := partition_counts.get(topic, 0)) > 0}


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """The member ids: static members first by instance id, then dynamic ones by member id.

    Member ids change with every restart; so static members keep their places (KIP-345).
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)
