"""The round-robin assignor: all partitions in order, assigned to the members in turn.

Source: RoundRobinAssignor. A member that does not subscribe to a partition's topic loses that turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from group_coordinator.coordinator.consumer.assignors.base import (
    PlainAssignor,
    in_order,
    subscribed_counts,
)
from group_coordinator.coordinator.consumer.protocol import Subscription, TopicPartition


class RoundRobinAssignor(PlainAssignor):
    """`roundrobin`."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Assign the partitions of all topics, sorted by topic and number, in turn."""
        assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        counts = subscribed_counts(partition_counts, members)
        circle = in_order(members)
        # The places of a topic's subscribers in the circle, ascending.
        places: dict[str, list[int]] = {topic: [] for topic in counts}
        for place, member_id in enumerate(circle):
            for topic in counts.keys() & set(members[member_id].topics):
                places[topic].append(place)
        turn = 0
        for topic, count in counts.items():
            subscribers = places[topic]
            for number in range(count):
                # Beyond the last subscriber the circle begins again with the first.
                place = subscribers[bisect_left(subscribers, turn) % len(subscribers)]
                assigned[circle[place]].append(TopicPartition(topic, number))
                turn = place + 1
        return assigned
