"""The five states of a group, and the transitions between them.

Rules of this module:

1. A group is in exactly one state, and changes it through `Group.transition_to` alone.
2. A transition that VALID_PREVIOUS_STATES does not list is a bug: it raises IllegalTransition.

Source: Apache Kafka, ClassicGroupState. The state is never stored in the offsets topic: a loaded
group with members is Stable, one without is Empty.
"""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """Kafka's states by Kafka's names."""

    EMPTY = "Empty"
    """No members; committed offsets linger until they expire.

    Actions: a join from a new member starts a rebalance; heartbeat and sync get UNKNOWN_MEMBER_ID;
    a commit without a generation is taken.
    Transitions: a member joins -> PreparingRebalance; no offsets left, deleted, or the partition
    moved away -> Dead.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Joins are parked until every member is back or the rebalance timeout is over.

    Actions: heartbeat and sync get REBALANCE_IN_PROGRESS; commits of the old generation are taken.
    Transitions: members joined -> CompletingRebalance; everybody left -> Empty; moved -> Dead.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun; its leader owes the assignment. AwaitingSync in Kafka before 1.1.

    Actions: syncs of followers are parked; heartbeats are fine; commits get REBALANCE_IN_PROGRESS.
    Transitions: the leader synced -> Stable; a join that changes things, a leave, an expiry, a
    member that never syncs, a store that failed -> PreparingRebalance; moved -> Dead.
    """

    STABLE = "Stable"
    """Every member has, or can ask for, its assignment.

    Actions: heartbeats, commits and syncs succeed; an unchanged follower's join is answered.
    Transitions: a new, changed or leading member joins, one leaves or expires, or one never synced
    -> PreparingRebalance; moved -> Dead.
    """

    DEAD = "Dead"
    """No members and no metadata: the group is being removed. No other state follows."""


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class IllegalTransition(RuntimeError):
    """A transition that the protocol does not have."""

    def __init__(self, group_id: str, current: GroupState, target: GroupState) -> None:
        allowed = ", ".join(sorted(state.value for state in VALID_PREVIOUS_STATES[target]))
        super().__init__(
            f"group {group_id!r} is {current.value}; {target.value} can only follow {allowed}"
        )
