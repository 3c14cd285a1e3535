"""The sticky assignment: each member keeps its partitions as far as a balanced assignment allows.

With one subscription, every member gets the same number of partitions or one more, and keeps as
many of those that it owned as that allows. Linear in the partitions.

With different subscriptions, owned partitions stay; each free one goes to the subscriber with the
fewest partitions; then partitions move from a member to a subscriber that has at least two fewer,
until there is no such pair. The result is balanced as Kafka's isBalanced defines it.

Source: AbstractStickyAssignor (ConstrainedAssignmentBuilder, GeneralAssignmentBuilder). Kafka
checks the whole balance for each partition; here a heap yields the subscriber of a topic with the
fewest partitions. Slightly fewer partitions move than in Kafka: a member that must give up a
partition of a topic first gives one that it did not own before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace

from group_coordinator.coordinator.consumer.protocol import TopicPartition


def assign_constrained(
    counts: Mapping[str, int], owned: Mapping[str, Sequence[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    """Divide the partitions of `counts` (sorted by topic) among the members of `owned`.

    `owned` has every member, sorted by id. A member that keeps only some of its partitions keeps
    the first ones.
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
    below_least = [m for m, partitions in assigned.items() if len(partitions) < least]
    while below_least:
        for member_id in below_least:
            assigned[member_id].append(free.popleft())
        filled.extend(m for m in below_least if len(assigned[m]) == least)
        below_least = [m for m in below_least if len(assigned[m]) < least]
    # The remaining partitions go, one each, to members that may still have one more.
    for member_id, partition in zip(filled, free, strict=False):
        assigned[member_id].append(partition)
    return assigned


def assign_general(
    counts: Mapping[str, int],
    topics: Mapping[str, Iterable[str]],
    owned: Mapping[str, Sequence[TopicPartition]],
    former: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    """Divide the partitions of `counts` among their subscribers.

    `topics` are each member's subscribed topics, `owned` its partitions, also of other topics.
    `former` maps a partition to its owner in an older generation, which is preferred if the
    partition must move.
    """
    subscribers: dict[str, list[str]] = {topic: [] for topic in counts}
    for member_id in sorted(topics):
        for topic in counts.keys() & set(topics[member_id]):
            subscribers[topic].append(member_id)
    load = dict.fromkeys(sorted(topics), 0)
    # Topics with few subscribers first, since they leave the least choice.
    topic_states = [
        _TopicState(topic, counts[topic], subscribers[topic], load, former)
        for topic in sorted(counts, key=lambda topic: (len(subscribers[topic]), topic))
    ]
    _keep(topic_states, owned)
    for state in topic_states:
        state.assign_free()
    _move_until_balanced(topic_states, new_only=True)
    _move_until_balanced(topic_states, new_only=False)
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in load}
    for state in sorted(topic_states, key=lambda state: state.name):
        for number, member_id in enumerate(state.holders):
            assigned[member_id].append(TopicPartition(state.name, number))
    return assigned


def _keep(topic_states: list[_TopicState], owned: Mapping[str, Sequence[TopicPartition]]) -> None:
    by_name = {topic.name: topic for topic in topic_states}
    for member_id, partitions in owned.items():
        for name, number in partitions:
            by_name[name].keep(number, member_id)


def _move_until_balanced(topic_states: list[_TopicState], new_only: bool) -> None:
    """Move partitions until none can move; with `new_only`, only those that had no owner before.

    This ends because every move makes the loads more even.
    """
    contested = [topic for topic in topic_states if len(topic.subscribers) > 1]
    moved = True
    while moved:
        moved = False
        for topic in contested:
            moved |= topic.even_out(new_only)


class _TopicState:
    """A topic's partitions while they are divided; `load` by member id is common to all topics."""

    __slots__ = (
        "_former",
        "_held_by_others",
        "_load",
        "_not_owned",
        "_owners",
        "holders",
        "name",
        "subscribers",
    )

    def __init__(
        self,
        name: str,
        count: int,
        subscribers: list[str],
        load: dict[str, int],
        former: Mapping[TopicPartition, str],
    ) -> None:
        self.name = name
        self.subscribers = dict.fromkeys(subscribers)
        self._load = load
        # By partition number: the holder now, and the owner before. "" is no member.
        self.holders = [""] * count
        self._owners = [""] * count
        self._former = {
            number: member_id
            for number in (range(count) if former else ())
            if (member_id := former.get(TopicPartition(name, number), "")) in self.subscribers
        }
        # The partitions that are not with their owner: by holder, and by (owner, holder).
        self._not_owned: dict[str, dict[int, None]] = {}
        self._held_by_others: dict[tuple[str, str], dict[int, None]] = {}

    def keep(self, number: int, member_id: str) -> None:
        """Leave a partition with its owner if the owner still subscribes to the topic."""
        if member_id in self.subscribers:
            self._owners[number] = member_id
            self._put(number, member_id)

    def assign_free(self) -> None:
        """Give each partition without a holder to the subscriber with the fewest."""
        free = [number for number, holder in enumerate(self.holders) if not holder]
        if not free:
            return
        load = self._load
        by_load = [(load[member_id], member_id) for member_id in self.subscribers]
        heapify(by_load)
        for number in free:
            least, member_id = by_load[0]
            heapreplace(by_load, (least + 1, member_id))
            self._put(number, member_id)

    def even_out(self, new_only: bool) -> bool:
        """Go once through the partitions and move those that can move; return whether any moved."""
        load = self._load
        least = min(load[member_id] for member_id in self.subscribers)
        if max(load[member_id] for member_id in set(self.holders)) <= least + 1:
            return False
        by_load = [(load[member_id], member_id) for member_id in self.subscribers]
        heapify(by_load)
        moved = False
        for number, owner in enumerate(self._owners):
            if new_only and owner:
                continue
            holder = self.holders[number]
            # An entry is stale if its member's load has grown since; for a shrunk load one was
            # pushed.
            while by_load[0][0] != load[by_load[0][1]]:
                heapreplace(by_load, (load[by_load[0][1]], by_load[0][1]))
            for target in (self._former.get(number, holder), by_load[0][1]):
                if load[holder] > load[target] + 1:
                    self._give(number, target)
                    heappush(by_load, (load[holder], holder))
                    moved = True
                    break
        return moved

    def _give(self, number: int, target: str) -> None:
        """Move a partition, or another of this topic if that lets an owner keep its own.

        Two members never swap partitions that each of them owned: that would be two moves instead
        of none.
        """
        holder = self.holders[number]
        if numbers := self._held_by_others.get((target, holder)):
            self._move(next(iter(numbers)), target)
            return
        if self._owners[number] == holder and (not_owned := self._not_owned.get(holder)):
            number = next(iter(not_owned))
        owner = self._owners[number]
        if owner not in ("", holder) and (numbers := self._held_by_others.get((target, owner))):
            # Both partitions return to their owners, and this owner's load stays the same.
            self._move(number, owner)
            number = next(iter(numbers))
        self._move(number, target)

    def _move(self, number: int, target: str) -> None:
        holder, owner = self.holders[number], self._owners[number]
        if owner != holder:
            del self._not_owned[holder][number]
            del self._held_by_others[owner, holder][number]
        self._put(number, target)
        self._load[holder] -= 1

    def _put(self, number: int, member_id: str) -> None:
        owner = self._owners[number]
        if owner != member_id:
            self._not_owned.setdefault(member_id, {})[number] = None
            self._held_by_others.setdefault((owner, member_id), {})[number] = None
        self.holders[number] = member_id
        self._load[member_id] += 1
