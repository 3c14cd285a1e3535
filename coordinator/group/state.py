"""The five states of a group, and the transitions between them.

A group is in exactly one state, and only `ClassicGroup.transition_to` changes it; a load sets
Stable directly. A transition that VALID_PREVIOUS_STATES does not list is a bug: it raises
IllegalTransition.

Source: Apache Kafka, ClassicGroupState. The offsets topic does not store the state: a loaded group
with members is Stable, one without is Empty.
"""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """Kafka's states by Kafka's names."""

    EMPTY = "Empty"
    """No members; committed offsets linger until they expire.

    Actions: a new member's join starts a rebalance; heartbeat and sync are answered
    UNKNOWN_MEMBER_ID; a commit without a generation is accepted.
    Transitions: a member joins -> PreparingRebalance; no offsets are left, the group is
    deleted, or its partition moves away -> Dead.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Joins are parked until every member has rejoined or the rebalance timeout has passed.

    Actions: heartbeat and sync are answered REBALANCE_IN_PROGRESS; commits of the old generation
    are accepted.
    Transitions: members joined -> CompletingRebalance; all members left -> Empty; the partition
    moves away -> Dead.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun; the leader must send the assignment. AwaitingSync before Kafka 1.1.

    Actions: followers' syncs are parked; heartbeats are answered NONE; commits are answered
    REBALANCE_IN_PROGRESS.
    Transitions: the leader syncs -> Stable; a new or changed member joins, a member leaves,
    expires or never syncs, or the assignment cannot be stored -> PreparingRebalance; the partition
    moves away -> Dead.
    """

    STABLE = "Stable"
    """The assignment is stored; each member has it or can fetch it by SyncGroup.

    Actions: heartbeats, commits and syncs succeed; an unchanged follower's join is answered.
    Transitions: a new or changed member or the leader joins, a member leaves or expires, or a
    member never syncs -> PreparingRebalance; the partition moves away -> Dead.
    """

    DEAD = "Dead"
    """No members and no metadata: the group is being removed. No other state follows."""


# In Python 3.11 the look-up of an Enum's member is slow, and every request needs several.
EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

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
    """A transition that the protocol does not allow."""

    def __init__(self, group_id: str, current: GroupState, target: GroupState) -> None:
        allowed = ", ".join(sorted(state.value for state in VALID_PREVIOUS_STATES[target]))
        super().__init__(
            f"group {group_id!r} is {current.value}; {target.value} can only follow {allowed}"
        )
