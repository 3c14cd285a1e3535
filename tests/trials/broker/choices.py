"""Where Kafka leaves a choice, or this coordinator differs on purpose: rows of the page about it.

Each is the beginning of a row of `coordinator/DIFFERENCES.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from group_coordinator.pipeline.replay.trace import Json
    from tests.trials.broker.exchange import Draft

OLDER = "the older of two joins or syncs of a member that both wait"
REMOVED = "the waiting sync of a member that is removed"
LEADER = "the leader leaves"
UNRECORDED = "a group that has no record yet is described"
_FORMING = ("Empty", "PreparingRebalance", "CompletingRebalance")
CHOICES = (OLDER, REMOVED, LEADER, UNRECORDED)


def never_answered(draft: Draft, mine: Json) -> str | None:
    """Return why a broker may never answer a request that has waited, and that ours answers so."""
    code = mine["error_code"]
    if code == ErrorCode.REBALANCE_IN_PROGRESS and draft.api in ("JoinGroup", "SyncGroup"):
        return OLDER
    if code == ErrorCode.UNKNOWN_MEMBER_ID and draft.api == "SyncGroup":
        return REMOVED
    return None


def is_unrecorded(draft: Draft, mine: Json, other: Json) -> bool:
    """Whether a broker does not describe yet a group that no SyncGroup has recorded."""
    if draft.api != "DescribeGroups":
        return False
    (ours,), (theirs,) = mine["groups"], other["groups"]
    return theirs["group_state"] == "Dead" and ours["group_state"] in _FORMING


def another_leader(draft: Draft, mine: Json, other: Json, leader: str | None) -> bool:
    """Whether answers to a join differ in who leads alone, after `leader`, who did, is gone."""
    if draft.api != "JoinGroup" or mine["leader"] == other["leader"]:
        return False
    if leader in (None, mine["leader"], other["leader"]):
        return False
    elected = ("leader", "members")
    return all(mine[name] == other[name] for name in mine if name not in elected)
