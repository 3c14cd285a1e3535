"""The states of a group, and the allowed transitions."""

from __future__ import annotations

from itertools import product

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState, IllegalTransition

E = GroupState.EMPTY
P = GroupState.PREPARING_REBALANCE
C = GroupState.COMPLETING_REBALANCE
S = GroupState.STABLE
D = GroupState.DEAD

LEGAL = {
    (E, P), (S, P), (C, P),
    (P, C),
    (C, S),
    (P, E),
    (E, D), (P, D), (C, D), (S, D), (D, D),
}  # fmt: skip
ILLEGAL = set(product(GroupState, GroupState)) - LEGAL


def steps(pairs: set[tuple[GroupState, GroupState]]) -> pytest.MarkDecorator:
    ordered = sorted(pairs, key=lambda pair: (pair[0].value, pair[1].value))
    return pytest.mark.parametrize(
        ("before", "after"), ordered, ids=[f"{a.value}-{b.value}" for a, b in ordered]
    )


@steps(LEGAL)
def test_a_legal_step_is_taken(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", state=before, previous_state=D, state_timestamp=1)
    group.transition_to(after, 77)
    assert (group.state, group.previous_state) == (after, before)
    assert group.state_timestamp == 77


@steps(ILLEGAL)
def test_an_illegal_step_fails_and_changes_nothing(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("orders", state=before, previous_state=D, state_timestamp=1)
    with pytest.raises(IllegalTransition, match=f"'orders' is {before.value}; {after.value} can"):
        group.transition_to(after, 77)
    assert (group.state, group.previous_state, group.state_timestamp) == (before, D, 1)


def test_the_error_names_the_states_that_would_have_been_right() -> None:
    with pytest.raises(IllegalTransition, match=r"CompletingRebalance, Empty, Stable$"):
        ClassicGroup("g", state=D).transition_to(P, 0)


@pytest.mark.parametrize(
    ("state", "can"), [(E, True), (S, True), (C, True), (P, False), (D, False)]
)
def test_which_states_a_rebalance_may_follow(state: GroupState, can: bool) -> None:
    assert ClassicGroup("g", state=state).can_rebalance is can


@pytest.mark.parametrize(
    ("before", "state", "initial"),
    [(E, P, True), (S, P, False), (C, P, False), (P, E, False), (D, E, False)],
)
def test_only_a_group_that_was_empty_gathers_its_members(
    before: GroupState, state: GroupState, initial: bool
) -> None:
    group = ClassicGroup("g", state=state, previous_state=before)
    assert group.in_initial_rebalance is initial


def test_a_group_is_born_empty_and_of_generation_zero() -> None:
    group = ClassicGroup("g")
    assert (group.state, group.generation_id) == (E, 0)
    assert group.protocol_type is None and group.leader_id is None


def test_states_have_kafka_s_names() -> None:
    assert {state.value for state in GroupState} == {
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    }
