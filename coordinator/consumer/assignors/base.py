"""The interface of assignors. Source: ConsumerPartitionAssignor, AbstractPartitionAssignor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from group_coordinator.coordinator.consumer.protocol import Subscription, TopicPartition


class RebalanceProtocol(StrEnum):
    """What members do with their partitions in a rebalance (KIP-429).

    EAGER: a member gives up all of them before it joins. COOPERATIVE: a member keeps all of them,
    gives up only those that the leader takes away, and then joins again.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Assignor(Protocol):
    """Divides partitions among members, without any state of its own.

    Racks (KIP-881) are ignored: Kafka matches a member's rack with those of a partition's replicas,
    and here no partition has replicas.
    """

    @property
    def name(self) -> str:
        """The protocol name in JoinGroup."""
        ...

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols that it supports, the preferred one first."""
        ...

    @property
    def version(self) -> int:
        """The version of its user data and of its algorithm (0 for all of Kafka's)."""
        ...

    def user_data(
        self, topics: Sequence[str], owned: Sequence[TopicPartition] | None, generation: int
    ) -> bytes | None:
        """Return the assignor's own bytes for a member's subscription, None for none.

        `owned` is the member's last assignment, which an eager member has given up by now; None if
        it never had one. `generation` is the generation of that assignment, -1 if there was none.
        """
        ...

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member of `members`, by member id.

        `partition_counts` are the topics that exist; other topics, and topics without subscribers,
        are skipped. The order of both mappings makes no difference.
        """
        ...


class PlainAssignor:
    """Base of eager assignors that look at topics alone, and so need no user data."""

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

    A static member's instance id outlives its member id, so it keeps its place when it restarts
    (KIP-345).
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)
