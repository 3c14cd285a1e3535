"""The sticky assignor: balance first, then as few moves as possible (KIP-54).

Source: StickyAssignor, AbstractStickyAssignor. Members are eager, and send what they owned, and in
which generation, as user data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from group_coordinator.coordinator.consumer.assignors.base import (
    ConsumerPartitionAssignor,
    assignments,
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
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)
from group_coordinator.coordinator.consumer.state import ConsumerGroupMetadata


class StickyAssignor(ConsumerPartitionAssignor):
    """`sticky`."""

    name = "sticky"

    def __init__(self) -> None:
        # The member's last assignment, which an eager member has given up when it joins.
        self._claim: Claim | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:  # noqa: ARG002
        """The member's last assignment and its generation; None before the first assignment."""
        claim = self._claim
        return None if claim is None else encode_claim(claim.partitions, claim.generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Keep the assignment and its generation for the next join."""
        self._claim = Claim(assignment.partitions, metadata.generation_id)

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide all partitions; owners are read from the user data, not from the subscriptions."""
        claims = {member_id: decode_claim(s.user_data) for member_id, s in subscriptions.items()}
        return assignments(assign_sticky(counts, subscriptions, claims, settle(claims)))


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
