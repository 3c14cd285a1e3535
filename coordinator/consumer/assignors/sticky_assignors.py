"""The sticky and cooperative sticky assignors: balance first, then as few moves as possible.

Sticky: members are eager, and send their last assignment and its generation as user data.

Cooperative sticky: members keep their partitions while they join. A partition that is to move is
assigned to no member in the first round. Its former owner revokes it and joins again, and the
second round assigns it.

Ownership: the claim of the newest generation counts. A partition that several members claim in that
generation belongs to no member. (Kafka depends on the order in which it reads claims, and may
take such a partition from a claimant of a newer generation too.)

User data: `sticky` version 0 has the previous assignment, version 1 also its generation.
`cooperative-sticky` version 0 has the generation. The bytes contain no version number: a reader
tries the newest version first. As in Kafka, unreadable bytes count as no claim, so that a member
with another client library, such as kafka-python 3.0, cannot stop the group's assignment.

Source: StickyAssignor (KIP-54), CooperativeStickyAssignor (KIP-429), AbstractStickyAssignor
(allSubscriptionsEqual, prepopulateCurrentAssignments).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Packed

from msgspec import Struct

from group_coordinator.coordinator.consumer.assignors.partition_assignor import (
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    assignments,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.assignors.sticky_assignment import (
    assign_constrained,
    assign_general,
)
from group_coordinator.coordinator.consumer.member_state import ConsumerGroupMetadata
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    flatten,
    group,
)
from group_coordinator.schemas.kafka.reading import InvalidMessage, reader
from group_coordinator.schemas.kafka.structs import struct
from group_coordinator.schemas.kafka.writing import writer
from group_coordinator.schemas.messages import NO_GENERATION

_GENERATION = Packed(">i")
_STICKY = "StickyAssignorUserData"


class Claim(Struct, frozen=True):
    """The partitions that a member claims to have owned, and their generation, -1 if unknown."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def encode_claim(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Return `sticky`'s user data, version 1."""
    return writer(_STICKY, 1)(struct(_STICKY)(group(partitions), generation))


def decode_claim(user_data: bytes | None) -> Claim:
    """Read `sticky`'s user data, version 1 or 0; bytes that cannot be read claim nothing."""
    if not user_data:
        return Claim()
    for version in (1, 0):
        try:
            read = reader(_STICKY, version)(user_data, 0)
        except InvalidMessage:
            continue
        return Claim(flatten(read.previous_assignment), max(read.generation, NO_GENERATION))
    return Claim()


def encode_generation(generation: int) -> bytes:
    """Return `cooperative-sticky`'s user data."""
    return _GENERATION.pack(generation)


def decode_generation(user_data: bytes | None) -> int:
    """Read `cooperative-sticky`'s user data; -1 if it cannot be read."""
    if user_data is None or len(user_data) < _GENERATION.size:
        return NO_GENERATION
    (generation,) = _GENERATION.unpack_from(user_data)
    return max(int(generation), NO_GENERATION)


class Ownership(Struct, frozen=True):
    """The owners of partitions according to the members' claims.

    `owners` maps a partition to the only claimant of the newest generation that claims it;
    `disputed` are the partitions with several. `former` maps a partition to its latest claimant of
    an older generation than the newest of all.
    """

    owners: dict[TopicPartition, str]
    disputed: set[TopicPartition]
    former: dict[TopicPartition, str]

    def by_member(
        self, counts: Mapping[str, int], claims: Mapping[str, Claim]
    ) -> dict[str, list[TopicPartition]]:
        """Return the existing partitions that each member owns, sorted by number, then topic."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(claims)}
        for partition, member_id in self.owners.items():
            if 0 <= partition.partition < counts.get(partition.topic, 0):
                owned[member_id].append(partition)
        for partitions in owned.values():
            partitions.sort(key=lambda p: (p.partition, p.topic))
        return owned


def resolve_ownership(claims: Mapping[str, Claim]) -> Ownership:
    """Resolve the claims of all members, by member id."""
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


class StickyAssignor(ConsumerPartitionAssignor):
    """Kafka's assignor `sticky` (KIP-54), for eager members."""

    name = "sticky"

    def __init__(self) -> None:
        # The member's last assignment, which an eager member has given up when it joins.
        self._claim: Claim | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:  # noqa: ARG002
        """Return the last assignment and its generation; None before the first assignment."""
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
        return assignments(assign_sticky(counts, subscriptions, claims, resolve_ownership(claims)))


def assign_sticky(
    partition_counts: Mapping[str, int],
    members: Mapping[str, Subscription],
    claims: Mapping[str, Claim],
    ownership: Ownership,
) -> dict[str, list[TopicPartition]]:
    """Divide all partitions; use the simpler algorithm if all subscriptions are equal."""
    counts = subscribed_counts(partition_counts, members)
    owned = ownership.by_member(counts, claims)
    topics = {member_id: frozenset(member.topics) for member_id, member in members.items()}
    if len(set(topics.values())) <= 1:
        return assign_constrained(counts, owned)
    return assign_general(counts, topics, owned, ownership.former)


class CooperativeStickyAssignor(ConsumerPartitionAssignor):
    """Kafka's assignor `cooperative-sticky` (KIP-429), for cooperative and eager members."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes:  # noqa: ARG002
        """Return the last generation, for leaders that read only subscription versions 0 and 1."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002
        """Keep the generation for the next join."""
        self._generation = metadata.generation_id

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide the partitions, except those that another member has to give up first.

        A partition that several members claim in one generation is left out too: all of them give
        it up. (Kafka leaves it out only if all members have the same subscription.)
        """
        claims = {member_id: _claim(member) for member_id, member in subscriptions.items()}
        ownership = resolve_ownership(claims)
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
    """Return a member's claim; before subscription version 2 the generation is in user data."""
    generation = member.generation_id
    if generation == NO_GENERATION:
        generation = decode_generation(member.user_data)
    return Claim(member.owned_partitions, generation)
