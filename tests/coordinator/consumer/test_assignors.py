"""What the assignors have in common: names, members that get nothing, and size."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from group_coordinator.coordinator.consumer.assignors import (
    ASSIGNORS,
    RebalanceProtocol,
    UnknownAssignor,
    assignor,
)
from group_coordinator.coordinator.consumer.protocol import Subscription
from tests.coordinator.consumer.assigning import (
    STICKY_KINDS,
    Assigned,
    check_balanced,
    check_valid,
    divide,
    moved,
    said,
    subscription,
    tps,
)

ALL = ["range", "roundrobin", *STICKY_KINDS]


def test_the_names_are_kafkas() -> None:
    assert list(ASSIGNORS) == ALL
    assert [assignor(name).name for name in ALL] == ALL


def test_each_call_makes_an_assignor_of_its_own() -> None:
    for name in ALL:
        assert assignor(name) is not assignor(name)


def test_only_cooperative_sticky_is_cooperative_and_it_can_be_eager_too() -> None:
    """So a group changes over in two rolling restarts: first both assignors, then it alone."""
    eager, cooperative = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
    assert [assignor(name).protocols for name in ALL] == [
        (eager,),
        (eager,),
        (eager,),
        (cooperative, eager),
    ]


def test_an_unknown_name() -> None:
    with pytest.raises(
        UnknownAssignor,
        match="unknown assignor 'stickey': use one of range, roundrobin, sticky, "
        "cooperative-sticky",
    ):
        assignor("stickey")


@pytest.mark.parametrize("name", ALL)
class TestEach:
    """Facts of AbstractPartitionAssignor, and of each assignor's test in Kafka."""

    def test_no_members(self, name: str) -> None:
        assert divide(name, {"t": 3}, {}) == {}

    def test_a_member_without_topics_gets_nothing(self, name: str) -> None:
        assert divide(name, {"t": 3}, {"c": Subscription(())}) == {"c": []}

    @pytest.mark.parametrize("counts", [{}, {"t": 0}], ids=["unknown", "without partitions"])
    def test_a_topic_that_is_not_there(self, name: str, counts: dict[str, int]) -> None:
        assert divide(name, counts, {"c": Subscription(("t",))}) == {"c": []}

    def test_the_topics_that_are_there_do_not_wait_for_one_that_is_not(self, name: str) -> None:
        given = divide(name, {"t1": 1, "t3": 2}, {"c": Subscription(("t1", "t2", "t3"))})
        assert sorted(given["c"]) == tps("t1-0 t3-0 t3-1")

    def test_only_subscribed_topics_are_assigned(self, name: str) -> None:
        given = divide(name, {"t": 2, "other": 2}, {"c": Subscription(("t",))})
        assert given == {"c": tps("t-0 t-1")}

    def test_more_members_than_partitions(self, name: str) -> None:
        members = {f"c{n}": Subscription(("t",)) for n in range(4)}
        given = divide(name, {"t": 2}, members)
        assert given == {"c0": tps("t-0"), "c1": tps("t-1"), "c2": [], "c3": []}

    def test_a_topic_named_twice_counts_once(self, name: str) -> None:
        members = {"a": Subscription(("t", "t")), "b": Subscription(("t",))}
        given = divide(name, {"t": 2}, members)
        assert given == {"a": tps("t-0"), "b": tps("t-1")}

    def test_the_order_of_members_and_topics_makes_no_difference(self, name: str) -> None:
        counts = {"t1": 3, "t2": 5, "t3": 2}
        members = {
            "c3": subscription(name, ["t3", "t1", "t2"], tps("t1-0 t2-1 t3-1"), 4),
            "c1": subscription(name, ["t1", "t2", "t3"], tps("t2-0 t2-2 t2-3 t2-4"), 4, "static"),
            "c2": subscription(name, ["t2", "t3", "t1"], tps("t1-0 t1-1 t1-2"), 4),
        }
        turned = dict(reversed(members.items()))
        one = divide(name, counts, members)
        assert one == divide(name, dict(reversed(counts.items())), turned)


# --- user data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_send_nothing_of_their_own(name: str) -> None:
    assert said(name, ["t"], tps("t-0"), 3) is None


def test_what_sticky_sends() -> None:
    """The last assignment by topic, then its generation; no version before them."""
    assert said("sticky", ["t"], None, -1) is None
    assert said("sticky", ["t"], tps("t-0 t-2"), 3) == bytes.fromhex(
        "00000001 0001 74 00000002 00000000 00000002 00000003"
    )
    assert said("sticky", ["t"], [], 3) == bytes.fromhex("00000000 00000003")


def test_what_cooperative_sticky_sends() -> None:
    assert said("cooperative-sticky", ["t"], None, -1) == bytes.fromhex("ffffffff")
    assert said("cooperative-sticky", ["t"], tps("t-0 t-2"), 3) == bytes.fromhex("00000003")


# --- size -----------------------------------------------------------------------------------------

MEMBERS, TOPICS, PARTITIONS = 1000, 100, 100


def large(
    uniform: bool, members: int = MEMBERS, topics: int = TOPICS, partitions: int = PARTITIONS
) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Topics of so many partitions; members, and one more, subscribe to all or to any number."""
    random_ = random.Random(1)
    counts = {f"t{n:02}": partitions for n in range(topics)}
    return counts, {
        f"c{n:04}": tuple(counts)
        if uniform
        else tuple(random_.sample(sorted(counts), random_.randint(1, topics)))
        for n in range(members + 1)
    }


def assign(
    kind: str, counts: dict[str, int], topics: dict[str, tuple[str, ...]], owned: Assigned
) -> Assigned:
    """Assign partitions to members, some with partitions since generation 1."""
    members = {
        m: subscription(kind, names, owned.get(m), 1 if m in owned else -1)
        for m, names in topics.items()
    }
    return divide(kind, counts, members)


def counted(work: Callable[[], Assigned]) -> tuple[int, Assigned]:
    """Do it; return how many steps of Python it took, lines and calls, and what it returned."""
    steps = 0

    def step(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return step

    tracing, profiling = sys.gettrace(), sys.getprofile()
    sys.settrace(step)
    sys.setprofile(step)
    try:
        done = work()
    finally:
        sys.settrace(tracing)
        sys.setprofile(profiling)
    return steps, done


@pytest.mark.parametrize("uniform", [True, False], ids=["alike", "different topics"])
@pytest.mark.parametrize("name", ALL)
def test_twice_the_members_and_partitions_take_twice_the_steps(name: str, uniform: bool) -> None:
    """Steps, and no time: how busy the machine is decides nothing."""

    def steps(size: int) -> list[int]:
        counts, topics = large(uniform, 50 * size, 10, 25 * size)
        here = dict(sorted(topics.items())[:-1])
        left = dict(sorted(here.items())[1:])
        formed, first = counted(lambda: assign(name, counts, here, {}))
        after_leave, _ = counted(lambda: assign(name, counts, left, first))
        after_join, _ = counted(lambda: assign(name, counts, topics, first))
        return [formed, after_leave, after_join]

    grown = [twice / once for once, twice in zip(steps(1), steps(2), strict=True)]
    assert max(grown) < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("uniform", [True, False], ids=["alike", "different topics"])
@pytest.mark.parametrize("name", ALL)
def test_a_thousand_members_share_ten_thousand_partitions(name: str, uniform: bool) -> None:
    counts, topics = large(uniform)
    newcomer = f"c{MEMBERS:04}"
    here = {m: names for m, names in topics.items() if m != newcomer}
    first = assign(name, counts, here, {})
    check_valid(counts, here, first)

    left = dict(here)
    gone = first[min(left)]
    del left[min(left)]
    after_leave = assign(name, counts, left, first)
    after_join = assign(name, counts, topics, first)
    if name == "sticky":
        for group, given in ((here, first), (left, after_leave), (topics, after_join)):
            check_valid(counts, group, given)
            check_balanced(group, given)
    if name in STICKY_KINDS:
        if uniform:
            assert not moved(first, after_leave)
            assert len(moved(first, after_join)) == len(counts) * PARTITIONS // (MEMBERS + 1)
        else:
            assert len(moved(first, after_leave)) < len(gone)
            assert len(moved(first, after_join)) < 3 * len(gone)
