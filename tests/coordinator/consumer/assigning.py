"""What the tests of the assignors share: partitions in short, and a group that rebalances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from group_coordinator.coordinator.consumer.assignors import assignor
from group_coordinator.coordinator.consumer.member_state import ConsumerGroupMetadata
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)

COOPERATIVE = "cooperative-sticky"
STICKY_KINDS = ["sticky", COOPERATIVE]

Assigned = dict[str, list[TopicPartition]]


def tps(text: str) -> list[TopicPartition]:
    """Partitions from words such as `t1-0`."""
    return [TopicPartition(*_split(word)) for word in text.split()]


def _split(word: str) -> tuple[str, int]:
    topic, _, number = word.rpartition("-")
    return topic, int(number)


def words(assigned: Mapping[str, Iterable[TopicPartition]]) -> dict[str, str]:
    """An assignment in short, each member's partitions sorted."""
    return {
        m: " ".join(f"{p.topic}-{p.partition}" for p in sorted(ps)) for m, ps in assigned.items()
    }


def divide(
    kind: str, counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """The partitions that an assignor of Kafka's gives to each member, without any user data."""
    given = assignor(kind).assign(counts, members)
    assert {each.user_data for each in given.values()} <= {None}
    return {member_id: list(each.partitions) for member_id, each in given.items()}


def said(
    kind: str, topics: Iterable[str], owned: Iterable[TopicPartition] | None, generation: int
) -> bytes | None:
    """The user data of a member that was assigned `owned` in a generation; None: nothing yet."""
    by = assignor(kind)
    if owned is not None:
        metadata = ConsumerGroupMetadata("g", generation, "member", None)
        by.on_assignment(Assignment(tuple(owned)), metadata)
    return by.user_data(tuple(topics))


def owner(
    kind: str,
    topics: str,
    owned: str | None = None,
    generation: int = -1,
    instance_id: str | None = None,
) -> Subscription:
    """A member's subscription; what it owned it says in the way of the assignor `kind`."""
    partitions = None if owned is None else tps(owned)
    return subscription(kind, topics.split(), partitions, generation, instance_id)


def subscription(
    kind: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition] | None = None,
    generation: int = -1,
    instance_id: str | None = None,
) -> Subscription:
    names = tuple(topics)
    partitions = None if owned is None else tuple(owned)
    return Subscription(
        topics=names,
        user_data=said(kind, names, partitions, generation),
        owned_partitions=(partitions or ()) if kind == COOPERATIVE else (),
        generation_id=generation,
        group_instance_id=instance_id,
    )


def check_valid(
    counts: Mapping[str, int], topics: Mapping[str, Iterable[str]], assigned: Assigned
) -> None:
    """Every partition of a subscribed topic is with one member, which subscribes to the topic."""
    assert set(assigned) == set(topics)
    wanted = {topic for names in topics.values() for topic in names}
    given = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(given) == sorted(
        TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0))
    )
    for member_id, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(topics[member_id])


def check_balanced(topics: Mapping[str, Iterable[str]], assigned: Assigned) -> None:
    """No partition is with a member that has two more than another subscriber of its topic."""
    for member_id, names in topics.items():
        for other, partitions in assigned.items():
            if len(partitions) > len(assigned[member_id]) + 1:
                assert not {p.topic for p in partitions} & set(names), (member_id, other)


def moved(before: Mapping[str, Iterable[TopicPartition]], after: Assigned) -> set[TopicPartition]:
    """The partitions that were taken from a member that is still there."""
    return {p for m, partitions in before.items() if m in after for p in partitions} - {
        p for m, partitions in after.items() for p in set(partitions) & set(before.get(m, ()))
    }


class Group:
    """Members with one of the sticky assignors; `rounds` is how many the last rebalance took."""

    def __init__(self, kind: str, counts: dict[str, int], topics: dict[str, Iterable[str]]) -> None:
        self.kind = kind
        self.counts = counts
        self.topics = {member_id: tuple(names) for member_id, names in topics.items()}
        self.owned: Assigned = {}
        self.generation = 0
        self.rounds = 0

    def rebalance(self) -> Assigned:
        """Let the members join until none must revoke a partition; check each step."""
        self.rounds = 0
        while self._round():
            assert self.rounds < 5
        check_valid(self.counts, self.topics, self.owned)
        check_balanced(self.topics, self.owned)
        return self.owned

    def _round(self) -> bool:
        """One join of all; whether members must join again."""
        self.rounds += 1
        if self.kind == COOPERATIVE:
            # What a member unsubscribes from it gives up before it joins.
            self.owned = {
                m: [p for p in partitions if p.topic in self.topics[m]]
                for m, partitions in self.owned.items()
                if m in self.topics
            }
        members = {
            m: subscription(
                self.kind, names, self.owned.get(m), self.generation if m in self.owned else -1
            )
            for m, names in self.topics.items()
        }
        given = divide(self.kind, self.counts, members)
        before, self.owned = self.owned, given
        self.generation += 1
        if self.kind != COOPERATIVE:
            return False
        holders = {p: m for m, partitions in before.items() for p in partitions}
        for member_id, partitions in given.items():
            for partition in partitions:
                assert holders.get(partition, member_id) == member_id, "its owner still has it"
        return any(set(partitions) - set(given[m]) for m, partitions in before.items())
