"""Consumers against the project's own coordinator: what becomes of a group, as its users see it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import (
    GroupMembershipOperation,
    MemberState,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.coordinator.group.state import GroupState
from tests.context import committed
from tests.coordinator.consumer.world import Member, World

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


def settled(world: World, *members: Member, ms: int = 3_000) -> None:
    """Time passes; then these, and only these, divide every partition among themselves."""
    world.run(ms)
    assert world.state is GroupState.STABLE
    assert all(one.is_settled for one in members)
    assert sorted(p for one in members for p in one.owned) == sorted(world.partitions())
    generations = {one.consumer.generation.generation_id for one in members}
    assert world.group is not None and generations == {world.group.generation_id}


# --- coming and going -----------------------------------------------------------------------------


def test_three_join_and_divide_the_partitions() -> None:
    world = World({"t": 6})
    members = [world.member(name) for name in "abc"]
    settled(world, *members)
    assert [len(one.owned) for one in members] == [2, 2, 2]
    assert sum(one.consumer.is_leader for one in members) == 1
    assert all(not one.errors for one in members)


def test_one_that_closes_leaves_at_once_and_the_others_take_over() -> None:
    world = World({"t": 6})
    a, b, c = (world.member(name) for name in "abc")
    settled(world, a, b, c)
    b.close()
    settled(world, a, c)
    assert b.consumer.closed and not b.owned
    assert b.told()[-1] == RevokePartitions((T2, T3), "the consumer is being closed")
    left = [event for event in world.events if event.event == "member_left"]
    assert "the consumer is being closed" in left[0].reason


def test_one_that_crashes_is_expired_after_its_session() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    b.crash()
    world.run(4_000)
    assert len(a.owned) == 1
    settled(world, a, ms=6_000)


def test_a_slow_poll_leaves_the_group_and_finds_its_partitions_lost() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    slow_since = world.now
    b.polls = False
    settled(world, a, ms=13_000)
    assert b.consumer.state is MemberState.UNJOINED
    assert any("max.poll.interval.ms (10000)" in note.text for note in b.consumer.take_log_lines())
    assert b.owned == {T1}, "it has not heard of it yet"
    b.polls = True
    settled(world, a, b)
    lost, assigned = b.told(since=slow_since)
    assert isinstance(lost, LosePartitions) and lost.partitions == (T1,)
    assert isinstance(assigned, AssignPartitions)


def test_heartbeats_alone_keep_a_member_while_the_user_works() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    b.polls = False
    settled(world, a, b, ms=9_000)
    b.polls = True
    settled(world, a, b)
    assert not b.told(LosePartitions)


def test_a_process_that_stood_still_past_its_session_learns_that_it_is_out() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    stopped_at = world.now
    b.alive = False
    settled(world, a, ms=10_000)
    b.alive = True
    settled(world, a, b)
    assert isinstance(b.told(since=stopped_at)[0], LosePartitions)


def test_a_coordinator_that_is_away_costs_nobody_anything() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    generation = a.consumer.generation
    world.lost = lambda _: True
    world.run(2_000)
    world.lost = lambda _: False
    settled(world, a, b)
    assert a.consumer.generation == generation
    assert not a.told(LosePartitions, RevokePartitions)


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_restarts_without_a_rebalance() -> None:
    world = World({"t": 2})
    a = world.member("a", group_instance_id="one")
    b = world.member("b", group_instance_id="two")
    settled(world, a, b)
    generation = world.group.generation_id if world.group else 0
    b.close()
    world.run(1_000)
    again = world.member("b2", group_instance_id="two")
    settled(world, a, again)
    assert again.consumer.generation.generation_id == generation
    assert len(a.told()) == 1


def test_a_static_leader_that_restarts_does_not_assign_again() -> None:
    world = World({"t": 2})
    a = world.member("a", group_instance_id="one")
    b = world.member("b", group_instance_id="two")
    settled(world, a, b)
    first, other = (a, b) if a.consumer.is_leader else (b, a)
    first.crash()
    instance = "one" if first is a else "two"
    again = world.member("again", group_instance_id=instance)
    settled(world, other, again)
    assert again.consumer.is_leader
    assert len(other.told()) == 1
    world.update_topics({"t": 3})
    settled(world, other, again)


def restarted_leader(world: World, **settings: Any) -> tuple[Member, Member]:
    """Two static members settle; the leader's process ends, grows the topic, and comes back.

    Returns the leader's new process, and the other member.
    """
    a = world.member("a", group_instance_id="one", **settings)
    b = world.member("b", group_instance_id="two", **settings)
    settled(world, a, b, ms=6_000)
    leader, other = (a, b) if a.consumer.is_leader else (b, a)
    instance = leader.consumer.settings.group_instance_id
    leader.crash()
    world.update_topics({"t": 5})
    return world.member("again", group_instance_id=instance, **settings), other


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_static_leader_finds_partitions_that_were_added_while_it_was_away(strategy: str) -> None:
    world = World({"t": 4})
    again, other = restarted_leader(world, partition_assignment_strategy=strategy)
    settled(world, again, other, ms=6_000)


def test_a_static_leader_asks_again_when_the_answer_is_lost() -> None:
    world = World({"t": 4})
    again, other = restarted_leader(world)
    world.lost = lambda one: one.api == "describe_groups" and world.now < 9_000
    settled(world, again, other, ms=9_000)


def test_a_static_member_that_is_told_to_leave_does() -> None:
    world = World({"t": 2})
    a = world.member("a", group_instance_id="one")
    b = world.member("b", group_instance_id="two")
    settled(world, a, b)
    b.consumer.close(world.now, 3_000, GroupMembershipOperation.LEAVE_GROUP)
    settled(world, a)


def test_two_with_one_instance_id_the_older_is_fenced_and_stops() -> None:
    world = World({"t": 2})
    a = world.member("a", group_instance_id="one")
    settled(world, a)
    usurper = world.member("b", group_instance_id="one")
    world.run(5_000)
    assert usurper.is_settled
    assert a.errors and isinstance(a.errors[0], FencedInstanceIdError)
    assert "group.instance.id 'one'" in str(a.errors[0])
    sent = len(a.requests)
    world.run(20_000)
    assert all(isinstance(error, FencedInstanceIdError) for error in a.errors)
    assert [one.api for one in a.requests[sent:]] == []


# --- rebalance protocols --------------------------------------------------------------------------


def test_eager_members_give_everything_up_before_they_join_again() -> None:
    world = World({"t": 4})
    a = world.member("a")
    settled(world, a)
    b = world.member("b")
    settled(world, a, b)
    assert [type(event) for event in a.told()] == [
        AssignPartitions,
        RevokePartitions,
        AssignPartitions,
    ]
    assert a.told()[1].partitions == (T0, T1, T2, T3)


def test_in_a_cooperative_handover_what_stays_is_never_revoked() -> None:
    world = World({"t": 4})
    a = world.member("a", **COOPERATIVE)
    settled(world, a)
    before = world.now
    b = world.member("b", **COOPERATIVE)
    world.run(150)
    settled(world, a, b)
    revoked = [one.partitions for one in a.told(RevokePartitions)]
    assert len(revoked) == 1 and len(revoked[0]) == 2
    assert b.owned == set(revoked[0])
    assert not any(event.partitions for event in a.told(AssignPartitions, since=before))
    assert not a.told(LosePartitions)


def test_cooperative_positions_that_stay_are_kept() -> None:
    world = World({"t": 4})
    a = world.member("a", **COOPERATIVE)
    settled(world, a)
    for one in a.owned:
        a.consumer.subscription.seek(one, 100 + one.partition)
    b = world.member("b", **COOPERATIVE)
    settled(world, a, b)
    assert {one: a.consumer.subscription.position(one) for one in a.owned} == {
        one: 100 + one.partition for one in a.owned
    }
    # Those that moved were committed before, and are read on from there.
    assert {one: b.consumer.subscription.position(one) for one in b.owned} == {
        one: 100 + one.partition for one in b.owned
    }


def test_a_rolling_restart_from_range_to_cooperative() -> None:
    """KIP-429: offered both, the members are eager; with the last one range-only gone, not."""
    world = World({"t": 4})
    a = world.member("a", partition_assignment_strategy="range")
    b = world.member("b", partition_assignment_strategy="range,cooperative-sticky")
    settled(world, a, b)
    assert b.consumer.generation.protocol_name == "range"
    a.close()
    c = world.member("c", **COOPERATIVE)
    settled(world, b, c, ms=5_000)
    assert c.consumer.generation.protocol_name == "cooperative-sticky"


# --- topics ---------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_assigned() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    world.update_topics({"t": 5})
    settled(world, a, b)


def test_a_pattern_takes_in_topics_as_they_are_made() -> None:
    world = World({"sales-eu": 1})
    a = world.member("a", topics=re.compile("sales-.*"))
    b = world.member("b", topics=re.compile("sales-.*"))
    settled(world, a, b)
    world.update_topics({"sales-eu": 1, "sales-us": 1})
    settled(world, a, b)
    world.topics["other-sales-us"] = 3
    a.consumer.update_topics(world.topics)
    b.consumer.update_topics(world.topics)
    world.run(3_000)
    assert a.owned | b.owned == world.partitions("sales-eu", "sales-us")


def test_the_leader_watches_the_topics_of_all() -> None:
    world = World({"t": 2, "u": 2})
    a, b = world.member("a", topics=["t"]), world.member("b", topics=["u"])
    settled(world, a, b)
    world.update_topics({"t": 2, "u": 3})
    settled(world, a, b)
    world.update_topics({"t": 3, "u": 3})
    settled(world, a, b)


def test_a_changed_subscription_is_joined_with() -> None:
    world = World({"t": 2, "u": 2})
    a = world.member("a", topics=["t", "u"])
    settled(world, a)
    a.consumer.subscribe(["u"])
    world.run(3_000)
    assert a.owned == world.partitions("u")


def test_unsubscribing_leaves_and_subscribing_joins_again() -> None:
    world = World({"t": 2})
    a, b = world.member("a"), world.member("b")
    settled(world, a, b)
    b.consumer.unsubscribe(world.now)
    settled(world, a)
    assert not b.consumer.is_subscribed and not b.owned
    b.consumer.subscribe(["t"])
    settled(world, a, b)


# --- commits --------------------------------------------------------------------------------------


def test_positions_are_committed_before_a_rebalance_and_at_close() -> None:
    world = World({"t": 2})
    a = world.member("a", auto_commit_interval_ms=60_000)
    settled(world, a)
    a.consumer.subscription.seek(T0, 17)
    world.run(500)
    assert T0 not in committed(world.group)
    b = world.member("b", auto_commit_interval_ms=60_000)
    settled(world, a, b)
    assert committed(world.group)["t", 0].offset == 17
    a.consumer.subscription.seek(T0, 18)
    a.close()
    settled(world, b)
    assert committed(world.group)["t", 0].offset == 18
    assert b.consumer.subscription.position(T0) == 18


def test_a_commit_of_one_that_was_thrown_out_fails() -> None:
    world = World({"t": 1})
    a = world.member("a", enable_auto_commit=False)
    settled(world, a)
    a.polls = False
    world.run(12_000)
    commit = a.consumer.commit_sync(world.now, {T0: OffsetAndMetadata(3)})
    world.run(100)
    assert isinstance(commit.error, CommitFailedError)
    assert "max.poll.interval.ms (10000)" in str(commit.error)


def test_what_is_committed_can_be_asked_for() -> None:
    world = World({"t": 2})
    a = world.member("a", enable_auto_commit=False)
    settled(world, a)
    stored = a.consumer.commit_sync(world.now, {T0: OffsetAndMetadata(3, "note")})
    a.send()
    world.run(100)
    stored.result()
    asked = a.consumer.committed(world.now, [T0, T1])
    a.send()
    world.run(100)
    assert asked.result() == {T0: OffsetAndMetadata(3, "note", -1), T1: None}


# --- what a person must see to --------------------------------------------------------------------


def test_a_session_timeout_that_the_coordinator_does_not_allow() -> None:
    world = World({"t": 1}, group_min_session_timeout_ms=7_000)
    a = world.member("a")
    world.run(1_000)
    assert isinstance(a.errors[0], InvalidSessionTimeoutError)
    assert "session.timeout.ms 6000" in str(a.errors[0])


def test_no_assignor_in_common() -> None:
    world = World({"t": 1})
    a = world.member("a", partition_assignment_strategy="range")
    settled(world, a)
    b = world.member("b", partition_assignment_strategy="roundrobin")
    world.run(1_000)
    assert isinstance(b.errors[0], InconsistentGroupProtocolError)
    assert "partition.assignment.strategy [roundrobin]" in str(b.errors[0])


def test_a_full_group() -> None:
    world = World({"t": 2}, group_max_size=1)
    a = world.member("a")
    settled(world, a)
    b = world.member("b")
    world.run(1_000)
    assert isinstance(b.errors[0], GroupMaxSizeReachedError)
    assert "group.max.size" in str(b.errors[0])


def test_a_topic_that_does_not_exist_is_named() -> None:
    world = World({"t": 1})
    a = world.member("a", topics=["t", "nothing"])
    world.run(1_000)
    assert a.owned == {T0}
    assert a.consumer.unknown_topics == {"nothing"}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_of_every_assignor(strategy: str) -> None:
    world = World({"t": 5, "u": 2})
    options = {"topics": ["t", "u"], "partition_assignment_strategy": strategy}
    a, b = world.member("a", **options), world.member("b", **options)
    settled(world, a, b)
    c = world.member("c", **options)
    settled(world, a, b, c)
    a.close()
    settled(world, b, c)
