"""The owners of partitions, settled from what members claim: the newest generation counts.

A partition that several members claim in the newest generation that claims it belongs to none of
them. Kafka reads claims in no certain order, and may also take such a partition from a claimant of
a still newer generation; here the order makes no difference. Source: AbstractStickyAssignor
(allSubscriptionsEqual, prepopulateCurrentAssignments).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from group_coordinator.coordinator.consumer.assignors.user_data import Claim
from group_coordinator.coordinator.consumer.protocol import TopicPartition


class Ownership(Struct, frozen=True):
    """The owners of partitions according to the members' claims.

    `owners`: the only claimant of the newest generation that claims the partition. `disputed`: the
    partitions with several such claimants. `former`: the latest claimant of a generation older than
    the newest of all.
    """

    owners: dict[TopicPartition, str]
    disputed: set[TopicPartition]
    former: dict[TopicPartition, str]

    def by_member(
        self, counts: Mapping[str, int], claims: Mapping[str, Claim]
    ) -> dict[str, list[TopicPartition]]:
        """What each member owns of the partitions that exist, sorted by number, then topic."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(claims)}
        for partition, member_id in self.owners.items():
            if 0 <= partition.partition < counts.get(partition.topic, 0):
                owned[member_id].append(partition)
        for partitions in owned.values():
            partitions.sort(key=lambda p: (p.partition, p.topic))
        return owned


def settle(claims: Mapping[str, Claim]) -> Ownership:
    """Settle the claims of all members, given by member id."""
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    former: dict[TopicPartition, str] = {}
    newest = max((claim.generation for claim in claims.values()), default=0)
    # The sort is stable, so ids order the members of one generation.
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
