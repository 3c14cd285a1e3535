"""The round-robin assignor: all partitions in order, assigned to the members in turn.

Source: RoundRobinAssignor. A member that does not subscribe to a partition's topic loses that turn.
"""

from __future__ import annotations

from bisect import bisect_left
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


class RoundRobinAssignor(ConsumerPartitionAssignor):
    """`roundrobin`."""

    name = "roundrobin"

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """Assign the partitions of all topics, sorted by topic and number, in turn."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        wanted = subscribed_counts(counts, subscriptions)
        circle = in_order(subscriptions)
        # The places of a topic's subscribers in the circle, ascending.
        places: dict[str, list[int]] = {topic: [] for topic in wanted}
        for place, member_id in enumerate(circle):
            for topic in wanted.keys() & set(subscriptions[member_id].topics):
                places[topic].append(place)
        turn = 0
        for topic, count in wanted.items():
            subscribers = places[topic]
            for number in range(count):
                # Beyond the last subscriber the circle begins again with the first.
                place = subscribers[bisect_left(subscribers, turn) % len(subscribers)]
                assigned[circle[place]].append(TopicPartition(topic, number))
                turn = place + 1
        return assignments(assigned)
