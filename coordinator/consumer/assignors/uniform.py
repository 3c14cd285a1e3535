"""The sticky assignment of members that all have the same subscription.

Source: AbstractStickyAssignor.ConstrainedAssignmentBuilder. Every member gets the same number of
partitions or one more, and keeps as many of its own as that allows. Linear in the partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from group_coordinator.coordinator.consumer.protocol import TopicPartition


def assign_uniform(
    counts: Mapping[str, int], owned: Mapping[str, Sequence[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    """Divide the partitions of `counts` (sorted by topic) among the members of `owned`.

    `owned` has every member, sorted by id; of its partitions the first are kept in preference.
    """
    if not owned:
        return {}
    least, room_for_more = divmod(sum(counts.values()), len(owned))
    assigned: dict[str, list[TopicPartition]] = {}
    for member_id, partitions in owned.items():
        # As many members as the remainder may keep one more than the others.
        more = room_for_more > 0 and len(partitions) > least
        room_for_more -= more
        assigned[member_id] = list(partitions[: least + more])
    kept = {partition for partitions in assigned.values() for partition in partitions}
    free = deque(
        partition
        for topic, count in counts.items()
        for number in range(count)
        if (partition := TopicPartition(topic, number)) not in kept
    )
    # One more goes first to members that kept enough, then to others as they reach `least`.
    filled = [m for m, partitions in assigned.items() if len(partitions) == least]
    wanting = [m for m, partitions in assigned.items() if len(partitions) < least]
    while wanting:
        for member_id in wanting:
            assigned[member_id].append(free.popleft())
        filled.extend(m for m in wanting if len(assigned[m]) == least)
        wanting = [m for m in wanting if len(assigned[m]) < least]
    # What is left goes, one each, to members that may still have one more.
    for member_id, partition in zip(filled, free, strict=False):
        assigned[member_id].append(partition)
    return assigned
