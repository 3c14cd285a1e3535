"""The range and round-robin assignors. Source: RangeAssignor, RoundRobinAssignor.

Range: each member gets a run of consecutive partitions of each topic. Topics with the same
subscribers and number of partitions are divided alike, so that partition n of each goes to the same
member.

Round-robin: all partitions in order are assigned to the members in turn. A member that does not
subscribe to a partition's topic is skipped for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from group_coordinator.coordinator.consumer.assignors.partition_assignor import (
    ConsumerPartitionAssignor,
    assignments,
    in_member_order,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)


class RangeAssignor(ConsumerPartitionAssignor):
    """The assignor `range`, Kafka's default."""

    name = "range"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Divide each topic; the first members get one more if the division leaves a remainder."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        topic_counts = subscribed_counts(counts, subscriptions)
        subscribers: dict[str, list[str]] = {topic: [] for topic in topic_counts}
        for member_id in in_member_order(subscriptions):
            for topic in topic_counts.keys() & set(subscriptions[member_id].topics):
                subscribers[topic].append(member_id)
        for topic, count in topic_counts.items():
            share, extra = divmod(count, len(subscribers[topic]))
            start = 0
            for position, member_id in enumerate(subscribers[topic]):
                end = start + share + (position < extra)
                assigned[member_id].extend(TopicPartition(topic, n) for n in range(start, end))
                start = end
        return assignments(assigned)


class RoundRobinAssignor(ConsumerPartitionAssignor):
    """The assignor `roundrobin`."""

    name = "roundrobin"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Assign the partitions of all topics, sorted by topic and number, in turn."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        topic_counts = subscribed_counts(counts, subscriptions)
        members = in_member_order(subscriptions)
        # The places of a topic's subscribers in the circle, ascending.
        positions: dict[str, list[int]] = {topic: [] for topic in topic_counts}
        for position, member_id in enumerate(members):
            for topic in topic_counts.keys() & set(subscriptions[member_id].topics):
                positions[topic].append(position)
        turn = 0
        for topic, count in topic_counts.items():
            subscribers = positions[topic]
            for number in range(count):
                # Beyond the last subscriber the circle begins again with the first.
                position = subscribers[bisect_left(subscribers, turn) % len(subscribers)]
                assigned[members[position]].append(TopicPartition(topic, number))
                turn = position + 1
        return assignments(assigned)
