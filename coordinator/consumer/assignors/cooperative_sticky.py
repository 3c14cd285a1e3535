"""The cooperative sticky assignor: the sticky one, in two rounds (KIP-429).

Source: CooperativeStickyAssignor. Members keep what they own while they join. A partition that is
to move is assigned to nobody in the first round: its owner finds it missing from its assignment,
gives it up and joins again. The second round assigns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from group_coordinator.coordinator.consumer.assignors.base import (
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    assignments,
)
from group_coordinator.coordinator.consumer.assignors.ownership import settle
from group_coordinator.coordinator.consumer.assignors.sticky import assign_sticky
from group_coordinator.coordinator.consumer.assignors.user_data import (
    Claim,
    decode_generation,
    encode_generation,
)
from group_coordinator.coordinator.consumer.protocol import Assignment, Subscription
from group_coordinator.coordinator.consumer.state import ConsumerGroupMetadata
from group_coordinator.schemas.messages import NO_GENERATION


class CooperativeStickyAssignor(ConsumerPartitionAssignor):
    """`cooperative-sticky`."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes:  # noqa: ARG002
        """The last generation, for leaders that read subscriptions of versions 0 and 1 only."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002
        """Keep the generation for the next join."""
        self._generation = metadata.generation_id

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide the partitions, except those that another member has to give up first.

        A partition that several members claim in one generation is left out too, so that all of
        them give it up. (Kafka leaves it out only if all members have the same subscription.)
        """
        claims = {member_id: _claim(member) for member_id, member in subscriptions.items()}
        ownership = settle(claims)
        target = assign_sticky(counts, subscriptions, claims, ownership)
        return assignments(
            {
                member_id: [
                    partition
                    for partition in partitions
                    if partition not in ownership.disputed
                    and ownership.owners.get(partition, member_id) == member_id
                ]
                for member_id, partitions in target.items()
            }
        )


def _claim(member: Subscription) -> Claim:
    """What a member owns; before version 2 only the user data has the generation."""
    generation = member.generation_id
    if generation == NO_GENERATION:
        generation = decode_generation(member.user_data)
    return Claim(member.owned_partitions, generation)
