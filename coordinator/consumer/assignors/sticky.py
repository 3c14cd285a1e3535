"""The sticky assignor: balance first, then as few moves as possible (KIP-54).

Source: StickyAssignor, AbstractStickyAssignor. Members are eager, and send what they owned, and in
which generation, as user data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from group_coordinator.coordinator.consumer.assignors.base import (
    RebalanceProtocol,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.assignors.general import assign_general
from group_coordinator.coordinator.consumer.assignors.ownership import Ownership, settle
from group_coordinator.coordinator.consumer.assignors.uniform import assign_uniform
from group_coordinator.coordinator.consumer.assignors.user_data import (
    Claim,
    decode_claim,
    encode_claim,
)
from group_coordinator.coordinator.consumer.protocol import Subscription, TopicPartition


class StickyAssignor:
    """`sticky`."""

    name = "sticky"
    protocols = (RebalanceProtocol.EAGER,)
    version = 0

    def user_data(
        self,
        topics: Sequence[str],  # noqa: ARG002
        owned: Sequence[TopicPartition] | None,
        generation: int,
    ) -> bytes | None:
        """The member's last assignment and its generation; None before the first assignment."""
        return None if owned is None else encode_claim(owned, generation)

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Divide all partitions; owners are read from the user data, not from the subscriptions."""
        claims = {member_id: decode_claim(m.user_data) for member_id, m in members.items()}
        return assign_sticky(partition_counts, members, claims, settle(claims))


def assign_sticky(
    partition_counts: Mapping[str, int],
    members: Mapping[str, Subscription],
    claims: Mapping[str, Claim],
    ownership: Ownership,
) -> dict[str, list[TopicPartition]]:
    """Divide all partitions, by the simpler algorithm if all members subscribe to the same."""
    counts = subscribed_counts(partition_counts, members)
    owned = ownership.by_member(counts, claims)
    topics = {member_id: frozenset(member.topics) for member_id, member in members.items()}
    if len(set(topics.values())) <= 1:
        return assign_uniform(counts, owned)
    return assign_general(counts, topics, owned, ownership.former)
