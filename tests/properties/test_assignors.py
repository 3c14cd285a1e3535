"""For any group: the assignors agree with kafka-python's, and sticky moves as little as possible.

kafka-python's assignors are the second implementation. If they differ from Kafka's own, Kafka is
followed:

* kafka-python forgets members if static and dynamic ones are mixed in its list. So it gets the
  static ones first.
* Its round robin raises KeyError if it skips a member. In this case the test uses Kafka's rule
  instead.
* Its sticky assignor has only the general algorithm. Fresh assignments are equal; later ones need
  not be, so balance and the number of moves are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple

from hypothesis import assume, event, given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from group_coordinator.coordinator.consumer.assignors.partition_assignor import in_member_order
from group_coordinator.coordinator.consumer.protocol import (
    ProtocolError,
    Subscription,
    TopicPartition,
    decode_subscription,
    encode_subscription,
)
from tests.coordinator.consumer.assigning import (
    COOPERATIVE,
    STICKY_KINDS,
    Assigned,
    Group,
    check_balanced,
    check_valid,
    divide,
    moved,
    subscription,
)
from tests.examples import examples

FIXED = examples(40)

TOPICS = [f"t{n}" for n in range(5)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
KINDS = st.sampled_from(STICKY_KINDS)
# Includes a topic that may not exist, so that members also subscribe to missing topics.
NAMES = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
IDS = st.lists(st.sampled_from([f"c{n}" for n in range(9)]), min_size=1, unique=True)


@st.composite
def topics_of_members(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draw the subscriptions of the members: all the same, or different ones."""
    ids = draw(IDS)
    if draw(st.booleans()):
        return dict.fromkeys(ids, draw(NAMES))
    return {member_id: draw(NAMES) for member_id in ids}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, Subscription]]:
    """Draw topics with partitions, and members, some of them static."""
    topics = draw(topics_of_members())
    instances = draw(st.permutations([None] * 9 + [f"i{n}" for n in range(9)]))
    members = {
        m: Subscription(tuple(names), group_instance_id=instance_id)
        for (m, names), instance_id in zip(topics.items(), instances, strict=False)
    }
    return draw(COUNTS), members


# --- kafka-python ---------------------------------------------------------------------------------


class Cluster:
    """The part of kafka-python's cluster metadata that its assignors use."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def topics(self) -> set[str]:
        return set(self.counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None


class Member(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: Any


def kafka_python(
    by: Any, counts: dict[str, int], members: dict[str, Subscription], owned: Assigned | None = None
) -> Assigned:
    """Return the assignment by kafka-python's assignor `by`; sticky gets the `owned` partitions."""
    theirs = []
    for member_id in in_member_order(members):
        user_data: Any = b""
        if owned is not None and member_id in owned:
            by_topic: dict[str, list[int]] = {}
            for topic, number in owned[member_id]:
                by_topic.setdefault(topic, []).append(number)
            user_data = StickyAssignorUserData(list(by_topic.items()), 1)
        metadata = ConsumerProtocolSubscription(0, list(members[member_id].topics), user_data)
        theirs.append(Member(member_id, members[member_id].group_instance_id, metadata))
    return {
        member_id: [TopicPartition(topic, n) for topic, ns in one.assigned_partitions for n in ns]
        for member_id, one in by.assign(Cluster(counts), theirs).items()
    }


def dealt_out(counts: dict[str, int], members: dict[str, Subscription]) -> Assigned:
    """Return the round robin that Kafka's RoundRobinAssignor describes, step by step."""
    assigned: Assigned = {member_id: [] for member_id in members}
    subscribed = {topic for member in members.values() for topic in member.topics}
    circle = cycle(in_member_order(members))
    for topic in sorted(subscribed & counts.keys()):
        for number in range(counts[topic]):
            member_id = next(circle)
            while topic not in members[member_id].topics:
                member_id = next(circle)
            assigned[member_id].append(TopicPartition(topic, number))
    return assigned


# --- range and round robin ------------------------------------------------------------------------


@FIXED
@given(clusters())
def test_range_is_kafka_pythons(cluster: tuple[dict[str, int], dict[str, Subscription]]) -> None:
    counts, members = cluster
    ours = divide("range", counts, members)
    check_valid(counts, {m: s.topics for m, s in members.items()}, ours)
    assert ours == kafka_python(RangePartitionAssignor, counts, members)


@FIXED
@given(clusters())
def test_round_robin_is_kafka_pythons(
    cluster: tuple[dict[str, int], dict[str, Subscription]],
) -> None:
    counts, members = cluster
    ours = divide("roundrobin", counts, members)
    check_valid(counts, {m: s.topics for m, s in members.items()}, ours)
    assert ours == dealt_out(counts, members)
    try:
        theirs = kafka_python(RoundRobinPartitionAssignor, counts, members)
    except KeyError:
        event("kafka-python passes over a member")
        assert len({frozenset(s.topics) for s in members.values()}) > 1
    else:
        event("kafka-python assigns")
        assert ours == theirs


# --- sticky ---------------------------------------------------------------------------------------


def subscribed(counts: dict[str, int], topics: dict[str, list[str]]) -> dict[str, int]:
    return {
        topic: n for topic, n in counts.items() if any(topic in names for names in topics.values())
    }


def as_sets(assigned: Assigned) -> dict[str, set[TopicPartition]]:
    return {member_id: set(partitions) for member_id, partitions in assigned.items()}


@FIXED
@given(COUNTS, topics_of_members(), KINDS)
def test_a_fresh_sticky_assignment_is_kafka_pythons(
    counts: dict[str, int], topics: dict[str, list[str]], kind: str
) -> None:
    members = {m: subscription(kind, names) for m, names in topics.items()}
    ours = divide(kind, counts, members)
    check_valid(counts, topics, ours)
    check_balanced(topics, ours)
    theirs = kafka_python(StickyPartitionAssignor(), subscribed(counts, topics), members)
    assert as_sets(ours) == as_sets(theirs)


@FIXED
@given(COUNTS, topics_of_members(), topics_of_members())
def test_sticky_moves_no_more_than_kafka_python(
    counts: dict[str, int], topics: dict[str, list[str]], then: dict[str, list[str]]
) -> None:
    """Members come, go and change their subscriptions, all at once."""
    group = Group("sticky", counts, topics)
    before = group.rebalance()
    group.topics = {m: tuple(names) for m, names in then.items()}
    after = group.rebalance()
    members = {m: subscription("sticky", names) for m, names in then.items()}
    theirs = kafka_python(StickyPartitionAssignor(), subscribed(counts, then), members, before)
    assert len(moved(before, after)) <= len(moved(before, theirs))


@FIXED
@given(COUNTS, topics_of_members(), KINDS)
def test_nothing_moves_when_nothing_has_changed(
    counts: dict[str, int], topics: dict[str, list[str]], kind: str
) -> None:
    group = Group(kind, counts, topics)
    before = group.rebalance()
    assert group.rounds == 1
    assert as_sets(group.rebalance()) == as_sets(before)
    assert group.rounds == 1


def fewest_moves(before: Iterable[list[TopicPartition]], total: int, members: int) -> int:
    """Return the fewest moves from remaining members that balance the group."""
    least, room_for_more = divmod(total, members)
    over = [len(partitions) - least for partitions in before if len(partitions) > least]
    return sum(over) - min(room_for_more, len(over))


@FIXED
@given(COUNTS, NAMES, IDS, IDS, COUNTS, KINDS)
def test_who_subscribes_alike_moves_no_more_than_must(
    counts: dict[str, int],
    names: list[str],
    ids: list[str],
    then: list[str],
    growth: dict[str, int],
    kind: str,
) -> None:
    """Members come and go, topics grow; the case of one member more or less is included."""
    group = Group(kind, counts, dict.fromkeys(ids, names))
    before = dict(group.rebalance())
    group.topics = dict.fromkeys(then, tuple(names))
    group.counts = {topic: n + growth.get(topic, 0) for topic, n in counts.items()}
    after = group.rebalance()
    sizes = [len(partitions) for partitions in after.values()]
    assert max(sizes) - min(sizes) <= 1
    stayed = [before[m] for m in then if m in before]
    assert len(moved(before, after)) == fewest_moves(stayed, sum(sizes), len(then))
    if set(then) <= set(ids):
        assert not moved(before, after)
    # If a member had to revoke a partition, the second round is the last.
    assert group.rounds <= (2 if kind == COOPERATIVE and moved(before, after) else 1)


@FIXED
@given(COUNTS, topics_of_members(), st.lists(topics_of_members(), min_size=1, max_size=4))
def test_cooperative_members_never_have_a_partition_twice(
    counts: dict[str, int], topics: dict[str, list[str]], then: list[dict[str, list[str]]]
) -> None:
    """Group checks each round: no owned partition is assigned twice, and balance is reached."""
    group = Group(COOPERATIVE, counts, topics)
    group.rebalance()
    for changed in then:
        group.topics = {m: tuple(names) for m, names in changed.items()}
        after = as_sets(group.rebalance())
        event(f"{group.rounds} rounds")
        assert as_sets(group.rebalance()) == after


# --- claims that do not fit together --------------------------------------------------------------

CLAIMED = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 11))


@FIXED
@given(COUNTS, topics_of_members(), st.data(), KINDS)
def test_members_may_claim_anything(
    counts: dict[str, int], topics: dict[str, list[str]], data: st.DataObject, kind: str
) -> None:
    claims = {
        m: (data.draw(st.lists(CLAIMED, max_size=12)), data.draw(st.integers(-1, 3)))
        for m in topics
    }
    members = {m: subscription(kind, names, *claims[m]) for m, names in topics.items()}
    after = divide(kind, counts, members)
    if kind != COOPERATIVE:
        check_valid(counts, topics, after)
        check_balanced(topics, after)
        return
    for member_id, partitions in after.items():
        for partition in partitions:
            claimants = {m: generation for m, (ps, generation) in claims.items() if partition in ps}
            assert partition.topic in topics[member_id]
            if claimants:
                newest = max(claimants.values())
                assert [m for m, g in claimants.items() if g == newest] == [member_id]
    given_out = [p for partitions in after.values() for p in partitions]
    assert len(given_out) == len(set(given_out))


@FIXED
@given(st.binary(max_size=60))
def test_any_bytes_are_a_subscription_or_a_protocol_error(blob: bytes) -> None:
    try:
        read = decode_subscription(blob)
    except ProtocolError:
        return
    assert decode_subscription(encode_subscription(read)).topics == tuple(sorted(read.topics))


@FIXED
@given(st.integers(0, 3), st.data())
def test_one_wrong_byte_is_read_or_is_a_protocol_error(version: int, data: st.DataObject) -> None:
    whole = Subscription(("t1", "t2"), b"mine", (TopicPartition("t1", 3),), 5, "rack")
    blob = bytearray(encode_subscription(whole, version))
    at = data.draw(st.integers(0, len(blob) - 1))
    wrong = data.draw(st.integers(0, 255))
    assume(blob[at] != wrong)
    blob[at] = wrong
    try:
        assert decode_subscription(bytes(blob)) != whole or at < 2
    except ProtocolError:
        event("not a subscription")
