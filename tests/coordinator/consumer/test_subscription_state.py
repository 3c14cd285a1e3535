"""The subscription, assigned and paused partitions, and the position of each."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionError,
    SubscriptionState,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def assigned(*partitions: TopicPartition) -> SubscriptionState:
    """A subscription to t and u with these partitions."""
    state = SubscriptionState()
    state.subscribe(["t", "u"])
    state.assign(partitions)
    return state


_WAYS: dict[str, Callable[[SubscriptionState], None]] = {
    "topics": lambda state: state.subscribe(["t"]),
    "pattern": lambda state: state.subscribe_pattern(re.compile("t")),
    "partitions": lambda state: state.assign_from_user([T0]),
}


@pytest.mark.parametrize("first", _WAYS)
@pytest.mark.parametrize("second", _WAYS)
def test_topics_a_pattern_and_partitions_exclude_each_other(first: str, second: str) -> None:
    state = SubscriptionState()
    _WAYS[first](state)
    _WAYS[first](state)
    if first != second:
        before = state.topics, state.pattern, state.assigned, state.mode
        match = "^Subscription to topics, partitions and pattern are mutually exclusive"
        with pytest.raises(SubscriptionError, match=match):
            _WAYS[second](state)
        assert (state.topics, state.pattern, state.assigned, state.mode) == before
        state.unsubscribe()
    _WAYS[second](state)
    assert state.is_subscribed == (second != "partitions")


def test_partitions_of_the_users_own_replace_all_and_those_that_stay_keep_where_they_are() -> None:
    state = SubscriptionState()
    state.assign_from_user([T0, T1])
    state.seek(T0, 4)
    state.assign_from_user([U0, T0])
    assert state.assigned == (T0, U0)
    assert (state.position(T0), state.initializing) == (4, (U0,))


@pytest.mark.parametrize("wrong", [("", 0), ("t", -1)])
def test_partitions_of_the_users_own_have_a_topic_and_a_number(wrong: tuple[str, int]) -> None:
    with pytest.raises(SubscriptionError, match="invalid partition"):
        SubscriptionState().assign_from_user([T0, TopicPartition(*wrong)])


@pytest.mark.parametrize("topics", [[], [""]])
def test_a_subscription_names_topics(topics: list[str]) -> None:
    with pytest.raises(SubscriptionError, match="topic names"):
        SubscriptionState().subscribe(topics)


def test_what_an_assignment_must_be_of() -> None:
    state = assigned()
    assert state.covers([T0, U0])
    assert not state.covers([TopicPartition("x", 0)])
    pattern = SubscriptionState()
    pattern.subscribe_pattern(re.compile("t"))
    assert pattern.covers([T0]) and not pattern.covers([TopicPartition("tt", 0)])


def test_partitions_that_stay_keep_where_they_are() -> None:
    state = assigned(T0, T1)
    state.seek(T0, 4)
    state.pause([T0])
    state.assign([T0, U0])
    assert state.position(T0) == 4 and state.paused == (T0,)
    assert state.initializing == (U0,)
    state.assign([T1])
    state.assign([T0])
    assert state.position(T0) is None and state.paused == ()


def test_rows_come_of_known_partitions_that_are_neither_paused_nor_going() -> None:
    state = assigned(T0, T1, U0)
    state.seek(T0, 1)
    state.seek(T1, 2)
    assert state.fetchable() == {T0: 1, T1: 2}
    state.pause([T0])
    assert state.fetchable() == {T1: 2}
    state.resume([T0])
    state.mark_pending_revocation()
    assert state.fetchable() == {}
    assert set(state.consumed()) == {T0, T1}, "but they are committed"


def test_a_reset_counts_while_it_is_wanted() -> None:
    state = assigned(T0)
    state.request_reset(T0, AutoOffsetReset.EARLIEST)
    assert state.awaiting_reset() == {T0: AutoOffsetReset.EARLIEST}
    state.resolve_reset(T0, AutoOffsetReset.LATEST, 9)
    assert state.position(T0) is None
    state.resolve_reset(T0, AutoOffsetReset.EARLIEST, 1)
    state.resolve_reset(T0, AutoOffsetReset.EARLIEST, 2)
    assert state.position(T0) == 1
    state.resolve_reset(U0, AutoOffsetReset.EARLIEST, 1)
    assert U0 not in state.assignment


def test_committed_offsets_are_for_those_that_have_no_position() -> None:
    state = assigned(T0, T1)
    state.seek(T1, 8)
    offsets = {T0: OffsetAndMetadata(3), T1: OffsetAndMetadata(3), U0: OffsetAndMetadata(3)}
    assert state.refresh(offsets, AutoOffsetReset.NONE) == ()
    assert state.consumed() == {T0: OffsetAndMetadata(3), T1: OffsetAndMetadata(8)}


def test_without_an_offset_and_without_a_policy_there_is_no_position() -> None:
    state = assigned(T0)
    assert state.refresh({T0: None}, AutoOffsetReset.NONE) == (T0,)
    assert state.initializing == (T0,)


def test_what_is_not_assigned_cannot_be_moved() -> None:
    state = assigned(T0)
    with pytest.raises(SubscriptionError, match="u-0 is not assigned"):
        state.seek(U0, 1)
    with pytest.raises(SubscriptionError, match="invalid offset -1: it must not be negative"):
        state.seek(T0, -1)
    with pytest.raises(SubscriptionError):
        state.pause([U0])
