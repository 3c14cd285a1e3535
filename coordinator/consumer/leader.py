"""The leader's part of a rebalance: decode subscriptions, assign, check and encode assignments.

Source: Kafka's ConsumerCoordinator (onLeaderElected, validateCooperativeAssignment), which checks
only cooperative moves. This leader refuses every assignment that would break the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from group_coordinator.coordinator.consumer.assignors import (
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
)
from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    InvalidAssignmentError,
)
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    ProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from group_coordinator.schemas.messages import (
    DescribeGroupsResponse,
    JoinGroupResponse,
    SyncGroupAssignment,
)


def read_subscriptions(join: JoinGroupResponse) -> dict[str, Subscription]:
    """Return the subscriptions, with instance ids, by member id. Raises ProtocolError."""
    return {
        member.member_id: msgspec.structs.replace(
            decode_subscription(member.metadata), group_instance_id=member.group_instance_id
        )
        for member in join.members
    }


def subscribed_topics(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    """Return the topics that at least one member subscribes to."""
    return frozenset(topic for member in subscriptions.values() for topic in member.topics)


def assigned_counts(group: DescribeGroupsResponse) -> dict[str, int]:
    """Return the number of assigned partitions of each topic, over all members.

    Raises ConsumerError if an assignment cannot be decoded.
    """
    try:
        decoded = [decode_assignment(m.assignment) for m in group.members if m.assignment]
    except ProtocolError as error:
        raise ConsumerError(f"a member's assignment cannot be read: {error}") from error
    return dict(Counter(topic for assignment in decoded for topic, _ in assignment.partitions))


def assign(
    assignor: ConsumerPartitionAssignor,
    counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
) -> tuple[SyncGroupAssignment, ...]:
    """Call the assignor; return all assignments for the leader's SyncGroup.

    `counts` are the topics' numbers of partitions. Raises InvalidAssignmentError, and the
    assignor's own errors.
    """
    assignments = assignor.assign(counts, subscriptions)
    for fault in _find_faults(assignments, counts, subscriptions):
        raise InvalidAssignmentError(f"assignor {assignor.name!r} gave {fault}")
    if assignor.name != CooperativeStickyAssignor.name:
        _check_cooperative_moves(assignor.name, assignments, subscriptions)
    return tuple(
        SyncGroupAssignment(member_id, encode_assignment(assignment))
        for member_id, assignment in assignments.items()
    )


def _find_faults(
    assignments: Mapping[str, Assignment],
    counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
) -> Iterator[str]:
    """Yield the faults of assignments.

    Each member needs an assignment. Each partition must exist, belong to a subscribed topic, and
    have one owner.
    """
    for member_id in subscriptions.keys() - assignments.keys():
        yield f"nothing, not even an empty Assignment, to {member_id!r}"
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in assignments.items():
        if member_id not in subscriptions:
            yield f"something to {member_id!r}, which is not a member of the group"
            continue
        if not isinstance(assignment, Assignment):
            yield f"{member_id!r} a {type(assignment).__name__}, which is not an Assignment"
            continue
        topics = frozenset(subscriptions[member_id].topics)
        for partition in assignment.partitions:
            topic, number = partition
            name = f"{topic}-{number}"
            if not 0 <= number < counts.get(topic, 0):
                yield f"{name} to {member_id!r}, but {name} does not exist"
            if topic not in topics:
                yield f"{name} to {member_id!r}, which does not subscribe to {topic!r}"
            if partition in owners:
                yield f"{name} twice: to {owners[partition]!r} and to {member_id!r}"
            owners[partition] = member_id


def _check_cooperative_moves(
    name: str, assignments: Mapping[str, Assignment], subscriptions: Mapping[str, Subscription]
) -> None:
    """Raise InvalidAssignmentError if a partition moves from a member that still owns it.

    Cooperative members keep their partitions while they join. As in Kafka, `cooperative-sticky` is
    not checked, because it ignores claims of an older generation.
    """
    owned = {m: frozenset(s.owned_partitions) for m, s in subscriptions.items()}
    owner = {partition: m for m, partitions in owned.items() for partition in partitions}
    for member_id, assignment in assignments.items():
        for partition in assignment.partitions:
            if partition in owner and partition not in owned[member_id]:
                raise InvalidAssignmentError(
                    f"assignor {name!r} gave {partition[0]}-{partition[1]} to {member_id!r} while "
                    f"{owner[partition]!r} owns it: assign it to no member now, and to "
                    f"{member_id!r} in the rebalance after {owner[partition]!r} has revoked it"
                )
