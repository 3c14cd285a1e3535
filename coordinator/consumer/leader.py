"""The leader's part: read all subscriptions, assign, write the assignments.

Source: Kafka's ConsumerCoordinator.onLeaderElected, without its validation of cooperative
assignments: Kafka skips it for its own assignors, and there are no others here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from group_coordinator.coordinator.consumer.assignors import Assignor
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from group_coordinator.schemas.messages import JoinGroupResponse, SyncGroupAssignment


def read_subscriptions(join: JoinGroupResponse) -> dict[str, Subscription]:
    """Each member's subscription, with its instance id, by member id. Raises ProtocolError."""
    return {
        member.member_id: msgspec.structs.replace(
            decode_subscription(member.metadata), group_instance_id=member.group_instance_id
        )
        for member in join.members
    }


def subscribed_topics(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    """The topics that any member subscribes to."""
    return frozenset(topic for one in subscriptions.values() for topic in one.topics)


def assign(
    assignor: Assignor,
    partition_counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
) -> tuple[SyncGroupAssignment, ...]:
    """Every member's assignment, as the leader's SyncGroup carries it."""
    assigned = assignor.assign(partition_counts, subscriptions)
    return tuple(
        SyncGroupAssignment(member_id, encode_assignment(Assignment(tuple(partitions))))
        for member_id, partitions in assigned.items()
    )
