"""What happens around a join: the automatic commit, the listener, the topics."""

from __future__ import annotations

import re

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import CommitFailedError
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CommitDone,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.protocol import decode_subscription
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import (
    BACKOFF_MS,
    COOPERATIVE,
    HEARTBEAT_MS,
    MAX_POLL_MS,
    T0,
    T1,
    Lone,
)

AUTO = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000_000}


def told_to_rebalance(one: Lone) -> Lone:
    """The coordinator rebalances the group."""
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    return one


# --- the order ------------------------------------------------------------------------------------


def test_the_join_waits_for_the_listener() -> None:
    one = told_to_rebalance(Lone().member())
    assert one.consumer.poll(one.now) == RevokePartitions((T0, T1), "group is already rebalancing")
    assert one.consumer.assignment == (T0, T1), "they are still the member's while it runs"
    one.advance(1_000)
    assert not one.requests("join_group")
    with pytest.raises(RuntimeError, match="callback_done"):
        one.consumer.poll(one.now)
    one.consumer.callback_done()
    assert one.poll() == []
    assert one.consumer.assignment == ()
    assert one.sent("join_group")


def test_an_eager_member_says_that_it_owns_nothing_a_cooperative_one_what_it_keeps() -> None:
    eager = {"partition_assignment_strategy": "range"}
    for options, owned in ((eager, ()), (COOPERATIVE, (T0, T1))):
        one = told_to_rebalance(Lone(client_rack="rack", **options).member())
        one.poll()
        join = one.sent("join_group").join_group
        assert join is not None
        said = decode_subscription(join.protocols[0].metadata)
        assert (said.topics, said.owned_partitions) == (("t",), owned)
        assert (said.generation_id, said.rack_id) == (1, "rack")


def test_a_cooperative_member_gives_up_what_moves_and_joins_again() -> None:
    one = told_to_rebalance(Lone(**COOPERATIVE).member())
    assert one.poll() == []
    one.answer_join(generation=2)
    one.answer_sync([T0])
    revoke, assign = one.poll()
    assert revoke == RevokePartitions((T1,), "need to revoke partitions and re-join")
    assert assign == AssignPartitions((), 2)
    assert one.consumer.assignment == (T0,)
    join = one.sent("join_group").join_group
    assert join is not None and join.reason == "need to revoke partitions and re-join"
    one.answer_join(generation=3)
    one.answer_sync([T0])
    assert one.poll() == [AssignPartitions((), 3)]


def test_a_cooperative_member_gives_up_topics_it_no_longer_wants_before_it_joins() -> None:
    one = Lone(**COOPERATIVE).member()
    one.consumer.subscribe(["u"])
    (revoke,) = one.poll()
    assert isinstance(revoke, RevokePartitions) and revoke.partitions == (T0, T1)
    assert one.sent("join_group")


def test_a_rebalance_found_during_the_sync_is_joined_after_the_assignment() -> None:
    one = Lone(**COOPERATIVE)
    one.find()
    one.poll()
    one.answer_join()
    one.answer_sync([T0])
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    assert one.poll() == [AssignPartitions((T0,), 1)]
    assert one.sent("join_group")


def test_an_assignment_whose_generation_was_lost_before_anybody_polled_is_not_taken() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer_sync([T0])
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.UNKNOWN_MEMBER_ID)
    assert one.poll() == []
    assert one.consumer.assignment == ()
    assert one.sent("join_group")


# --- the automatic commit before a rebalance ------------------------------------------------------


def test_positions_are_committed_before_the_listener_runs() -> None:
    one = told_to_rebalance(Lone(**AUTO).member())
    one.consumer.subscription.seek(T0, 5)
    assert one.poll() == []
    commit = one.sent("offset_commit").offset_commit
    assert commit is not None
    assert [p.committed_offset for p in commit.topics[0].partitions] == [5, 0]
    assert one.consumer.subscription.fetchable() == {}, "what is read now would be read twice"
    one.answer_commit()
    done, revoke = one.poll()
    assert isinstance(done, CommitDone) and done.commit_id is None and done.error is None
    assert isinstance(revoke, RevokePartitions)
    assert one.sent("join_group")


def test_a_cooperative_member_reads_on_while_it_commits() -> None:
    one = told_to_rebalance(Lone(**AUTO, **COOPERATIVE).member())
    one.poll()
    assert one.sent("offset_commit")
    assert set(one.consumer.subscription.fetchable()) == {T0, T1}


def test_that_commit_is_tried_again_while_it_may_help() -> None:
    one = told_to_rebalance(Lone(**AUTO).member())
    one.poll()
    one.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert all(isinstance(event, CommitDone) for event in one.poll())
    one.advance(BACKOFF_MS)
    one.poll()
    one.answer_commit()
    assert isinstance(one.poll()[-1], RevokePartitions)


def test_that_commit_may_fail_and_the_join_goes_on() -> None:
    one = told_to_rebalance(Lone(**AUTO).member())
    one.poll()
    one.answer_commit(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert isinstance(one.poll()[-1], RevokePartitions)


def test_that_commit_may_find_that_the_member_is_out() -> None:
    one = told_to_rebalance(Lone(**AUTO).member())
    one.poll()
    one.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    done, lost = one.poll()
    assert isinstance(done, CommitDone) and isinstance(done.error, CommitFailedError)
    assert isinstance(lost, LosePartitions)


def test_that_commit_holds_the_join_up_for_no_longer_than_the_others_wait() -> None:
    one = told_to_rebalance(Lone(**AUTO).member())
    started = one.now
    one.poll()
    while not one.requests("join_group"):
        assert one.now <= started + MAX_POLL_MS
        one.advance(BACKOFF_MS)
        for heartbeat in one.requests("heartbeat"):
            one.answer(heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
        for commit in one.requests("offset_commit"):
            one.answer(commit, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        one.poll()
    assert one.now == started + MAX_POLL_MS


def test_without_automatic_commits_there_is_none() -> None:
    one = told_to_rebalance(Lone().member())
    assert [type(event) for event in one.poll()] == [RevokePartitions]
    assert not one.requests("offset_commit")


# --- topics ---------------------------------------------------------------------------------------


def test_there_is_no_join_before_the_catalogue_is_known() -> None:
    one = Lone(catalogue=None)
    one.find()
    assert one.poll() == []
    assert not one.requests("join_group")
    assert not one.consumer.unknown_topics
    one.consumer.update_topics({"t": 2})
    one.poll()
    assert one.sent("join_group")


def test_a_pattern_matches_whole_names_and_new_topics_make_it_join_again() -> None:
    one = Lone(topics=re.compile("x.*"))
    one.find()
    one.join(assigned=[])
    one.consumer.update_topics({"t": 1, "xyz": 1, "axyz": 1})
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.reason == "subscription has changed"
    assert decode_subscription(join.protocols[0].metadata).topics == ("xyz",)


def test_a_leader_joins_again_when_a_topic_of_the_group_grows_a_follower_does_not() -> None:
    for leads in (False, True):
        one = Lone()
        one.find()
        one.poll()
        join = one.sent("join_group").join_group
        assert join is not None
        blob = join.protocols[0].metadata
        one.answer_join(leads=[m.JoinGroupResponseMember("member", None, blob)] if leads else [])
        one.poll()
        one.answer_sync([T0, T1])
        one.poll()
        one.consumer.update_topics({"t": 2, "u": 1})
        assert one.poll() == []
        one.consumer.update_topics({"t": 3})
        events = one.poll()
        assert bool(events) is leads
        if leads:
            again = one.sent("join_group").join_group
            assert again is not None and again.reason == "cached metadata has changed"


def test_an_assignment_of_an_older_subscription_is_not_taken() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.consumer.update_topics({"t": 2, "u": 2})
    one.consumer.subscribe(["u"])
    one.answer_join()
    one.answer_sync([T0])
    assert one.poll() == [
        RevokePartitions((), "received assignment does not match the current subscription")
    ]
    assert one.consumer.assignment == ()
    assert one.sent("join_group")


def test_a_pattern_follows_its_leader_to_topics_it_has_not_seen() -> None:
    one = Lone(topics=re.compile("[tu]"))
    one.find()
    one.poll()
    one.answer_join()
    unseen = T0._replace(topic="u")
    one.answer_sync([T0, unseen])
    assert one.poll() == [AssignPartitions((T0, unseen), 1)]
    assert not one.requests("join_group")
