"""Range and round robin: the order of members, topics and numbers decides the assignment.

The cases are those of Kafka's RangeAssignorTest and RoundRobinAssignorTest, without the racks.
"""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.protocol import Subscription
from tests.coordinator.consumer.assigning import divide, words


def static(instance_id: str | None, topics: str = "t1 t2") -> Subscription:
    return Subscription(tuple(topics.split()), group_instance_id=instance_id)


def dynamic(topics: str) -> Subscription:
    return static(None, topics)


def test_both_give_a_lone_member_everything() -> None:
    for name in ("range", "roundrobin"):
        given = divide(name, {"t1": 1, "t2": 2}, {"c": dynamic("t1 t2")})
        assert words(given) == {"c": "t1-0 t2-0 t2-1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Range starts each topic with the first member, round robin continues with the next one.
        ("range", {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}),
        ("roundrobin", {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}),
    ],
)
def test_two_topics_of_three_partitions(name: str, expected: dict[str, str]) -> None:
    members = {"c1": dynamic("t1 t2"), "c2": dynamic("t1 t2")}
    assert words(divide(name, {"t1": 3, "t2": 3}, members)) == expected


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_members_with_different_topics(name: str) -> None:
    members = {"c1": dynamic("t1"), "c2": dynamic("t1 t2"), "c3": dynamic("t1")}
    assert words(divide(name, {"t1": 3, "t2": 2}, members)) == {
        "c1": "t1-0",
        "c2": "t1-1 t2-0 t2-1",
        "c3": "t1-2",
    }


def test_round_robin_is_uneven_where_topics_differ() -> None:
    """The scenario of KIP-54: sticky does better."""
    all_topics, odd = dynamic("t1 t2 t3 t4 t5"), dynamic("t1 t3 t5")
    counts = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    members = {"c1": all_topics, "c2": odd, "c3": odd, "c4": all_topics}
    assert words(divide("roundrobin", counts, members)) == {
        "c1": "t1-0 t3-0 t5-0",
        "c2": "t1-1 t3-1 t5-1",
        "c3": "",
        "c4": "t2-0 t4-0",
    }


def test_range_divides_topics_of_one_size_alike() -> None:
    """Partition n of each goes to one member, so that streams of one key meet."""
    counts = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}
    members = {f"c{n}": dynamic("t1 t2 t3 t4 t5 t6 t7") for n in (1, 2, 3)}
    assert words(divide("range", counts, members)) == {
        "c1": "t1-0 t1-1 t2-0 t2-1 t3-0 t4-0 t5-0 t5-1 t6-0 t6-1",
        "c2": "t1-2 t1-3 t2-2 t2-3 t3-1 t4-1 t5-2 t6-2",
        "c3": "t1-4 t1-5 t2-4 t2-5 t5-3 t6-3",
    }


# --- static members -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("range", "t1-0 t1-1 t2-0 t2-1", "t1-2 t2-2"),
        ("roundrobin", "t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"),
    ],
)
@pytest.mark.parametrize("other", ["instance2", None], ids=["static", "dynamic"])
def test_static_members_come_first_and_by_instance_id(
    name: str, first: str, second: str, other: str | None
) -> None:
    members = {"consumer-b": static("instance1"), "consumer-a": static(other)}
    given = divide(name, {"t1": 3, "t2": 3}, members)
    assert words(given) == {"consumer-b": first, "consumer-a": second}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_that_are_not_together_in_the_list(name: str) -> None:
    """Where kafka-python loses members: it puts together neighbours in the list only."""
    members = {
        "c1": static("i1", "t"),
        "c2": dynamic("t"),
        "c3": static("i3", "t"),
        "c4": dynamic("t"),
    }
    given = words(divide(name, {"t": 4}, members))
    assert given == {"c1": "t-0", "c3": "t-1", "c2": "t-2", "c4": "t-3"}


@pytest.mark.parametrize(
    ("name", "counts", "expected"),
    [
        ("range", {"t1": 5, "t2": 4}, ["t1-0 t1-1 t2-0", "t1-2 t2-1", "t1-3 t2-2", "t1-4 t2-3"]),
        ("roundrobin", {"t1": 3, "t2": 3}, ["t1-0 t2-1", "t1-1 t2-2", "t1-2", "t2-0"]),
    ],
)
def test_static_members_keep_theirs_when_a_dynamic_one_is_replaced(
    name: str, counts: dict[str, int], expected: list[str]
) -> None:
    members = {f"c{n}": static(f"instance{n}") for n in (1, 2, 3)}
    for newcomer in ("c4", "a5"):
        given = words(divide(name, counts, {**members, newcomer: static(None)}))
        assert [given[m] for m in ("c1", "c2", "c3", newcomer)] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", ["t1-0 t1-1 t2-0 t2-1", "t1-2 t1-3 t2-2 t2-3", "t1-4 t2-4"]),
        ("roundrobin", ["t1-0 t1-3 t2-1 t2-4", "t1-1 t1-4 t2-2", "t1-2 t2-0 t2-3"]),
    ],
)
def test_static_members_keep_theirs_when_their_member_ids_change(
    name: str, expected: list[str]
) -> None:
    for ids in (("c1", "c2", "c3"), ("c1", "c5", "c4")):
        members = {m: static(f"instance{n}") for n, m in enumerate(ids)}
        given = words(divide(name, {"t1": 5, "t2": 5}, members))
        assert [given[m] for m in ids] == expected
