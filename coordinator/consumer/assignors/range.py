"""The range assignor: of each topic, each member gets a run of consecutive partitions.

Source: RangeAssignor. Topics with the same subscribers and number of partitions are divided alike,
so that partition n of each goes to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from group_coordinator.coordinator.consumer.assignors.base import (
    PlainAssignor,
    in_order,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.protocol import Subscription, TopicPartition


class RangeAssignor(PlainAssignor):
    """`range`, Kafka's default."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Divide each topic; the first members get one more if the division leaves a remainder."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        counts = subscribed_counts(partition_counts, members)
        subscribers: dict[str, list[str]] = {topic: [] for topic in counts}
        for member_id in in_order(members):
            for topic in counts.keys() & set(members[member_id].topics):
                subscribers[topic].append(member_id)
        for topic, count in counts.items():
            each, extra = divmod(count, len(subscribers[topic]))
            start = 0
            for place, member_id in enumerate(subscribers[topic]):
                end = start + each + (place < extra)
                assigned[member_id].extend(TopicPartition(topic, n) for n in range(start, end))
                start = end
        return assigned
