"""Who owns what, when members are asked: the newest generation is believed.

Source: AbstractStickyAssignor (allSubscriptionsEqual, prepopulateCurrentAssignments). A partition
that several members of the newest generation claim belongs to none of them. Kafka meets claims in
no certain order and so may also take such a partition from a still newer claimant; here the order
makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coordinator.consumer.assignors.user_data import Claim
from coordinator.consumer.protocol import TopicPartition


class Ownership(Struct, frozen=True):
    """The owners by what members claim.

    `owners`: the one claimant in the newest generation that claims the partition. `disputed`: the
    partitions with several such claimants. `former`: of those that claim the partition in a
    generation older than the newest of all, the latest.
    """

    owners: dict[TopicPartition, str]
    disputed: set[TopicPartition]
    former: dict[TopicPartition, str]

    def by_member(
        self, counts: Mapping[str, int], claims: Mapping[str, Claim]
    ) -> dict[str, list[TopicPartition]]:
        """What each member owns of the partitions that there are, by number and topic."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(claims)}
        for partition, member_id in self.owners.items():
            if 0 <= partition.partition < counts.get(partition.topic, 0):
                owned[member_id].append(partition)
        for partitions in owned.values():
            partitions.sort(key=lambda p: (p.partition, p.topic))
        return owned


def settle(claims: Mapping[str, Claim]) -> Ownership:
    """Decide between the claims of all members, by member id."""
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    former: dict[TopicPartition, str] = {}
    newest = max((claim.generation for claim in claims.values()), default=0)
    # Stable, so the order of ids decides between members of one generation.
    newest_first = sorted(sorted(claims), key=lambda m: claims[m].generation, reverse=True)
    for member_id in newest_first:
        claim = claims[member_id]
        for partition in set(claim.partitions):
            owner = owners.setdefault(partition, member_id)
            if owner != member_id and claims[owner].generation == claim.generation:
                disputed.add(partition)
            if claim.generation < newest:
                former.setdefault(partition, member_id)
    for partition in disputed:
        del owners[partition]
    return Ownership(owners, disputed, former)
