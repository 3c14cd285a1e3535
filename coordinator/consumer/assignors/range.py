"""The range assignor: of each topic, each member gets a run of consecutive partitions.

Source: RangeAssignor. Topics with the same subscribers and number of partitions are divided alike,
so that partition n of each goes to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from group_coordinator.coordinator.consumer.assignors.base import (
    ConsumerPartitionAssignor,
    assignments,
    in_order,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)


class RangeAssignor(ConsumerPartitionAssignor):
    """`range`, Kafka's default."""

    name = "range"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide each topic; the first members get one more if the division leaves a remainder."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        wanted = subscribed_counts(counts, subscriptions)
        subscribers: dict[str, list[str]] = {topic: [] for topic in wanted}
        for member_id in in_order(subscriptions):
            for topic in wanted.keys() & set(subscriptions[member_id].topics):
                subscribers[topic].append(member_id)
        for topic, count in wanted.items():
            each, extra = divmod(count, len(subscribers[topic]))
            start = 0
            for place, member_id in enumerate(subscribers[topic]):
                end = start + each + (place < extra)
                assigned[member_id].extend(TopicPartition(topic, n) for n in range(start, end))
                start = end
        return assignments(assigned)
