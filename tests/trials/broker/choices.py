"""Expected differences from Kafka, by its timing or by this coordinator's design.

Each is the beginning of a row of `coordinator/DIFFERENCES.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from group_coordinator.pipeline.replay.trace import Json
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from tests.trials.broker.exchange import Draft

OLDER = "the older of two joins or syncs of a member that both wait"
REMOVED = "the waiting sync of a member that is removed"
LEADER = "the leader leaves"
UNRECORDED = "a group without a record is described"
_FORMING = ("Empty", "PreparingRebalance", "CompletingRebalance")
CHOICES = (OLDER, REMOVED, LEADER, UNRECORDED)


class Past(Struct):
    """The state of a group as known from the responses so far; member ids are this coordinator's.

    `is_recorded`: a record of the group is committed, so the broker knows it. `members` are the
    static ones, by their instance ids.
    """

    leader: str | None = None
    is_recorded: bool = False
    members: dict[str, str] = field(default_factory=dict)

    def hear(self, draft: Draft, mine: Json) -> None:
        """Take an answer that both sides gave."""
        is_done = mine.get("error_code") == ErrorCode.NONE
        if draft.api == "JoinGroup":
            self.leader = mine["leader"] or self.leader
            instance_id = draft.fields.get("group_instance_id")
            if is_done and instance_id is not None:
                self.members[instance_id] = mine["member_id"]
        elif draft.api == "SyncGroup":
            self.is_recorded |= is_done
        elif draft.api == "OffsetCommit":
            codes = [part["error_code"] for topic in mine["topics"] for part in topic["partitions"]]
            self.is_recorded |= ErrorCode.NONE in codes
        elif draft.api == "DeleteGroups":
            (deleted,) = mine["results"]
            self.is_recorded &= deleted["error_code"] != ErrorCode.NONE


def never_answered(past: Past, waiting: Draft, sent: Draft, mine: Json) -> str | None:
    """Return why a broker may never answer a parked request that this coordinator answered on
    `sent`.
    """
    code = mine["error_code"]
    member_id = waiting.fields["member_id"].ours
    # A member that joins for the first time has no id, so two such joins are two members.
    if code == ErrorCode.REBALANCE_IN_PROGRESS and sent.api == waiting.api and member_id:
        return OLDER if sent.fields["member_id"].ours == member_id else None
    if code == ErrorCode.UNKNOWN_MEMBER_ID and waiting.api == "SyncGroup":
        return REMOVED if member_id in _leaving(past, sent) else None
    return None


def _leaving(past: Past, sent: Draft) -> Iterator[str | None]:
    """Yield the ids of the members that a LeaveGroup names, some by their instance ids alone."""
    if sent.api == "LeaveGroup":
        for leaving in sent.fields.get("members", [sent.fields]):
            yield leaving["member_id"].ours or past.members.get(leaving.get("group_instance_id"))


def is_unrecorded(past: Past, draft: Draft, mine: Json, other: Json) -> bool:
    """Return whether a broker does not describe a group yet, because it has no committed record.

    A broker describes groups by committed records, and answers the join that creates a group
    earlier (GroupMetadataManager.describeGroups, classicGroupJoinToClassicGroup).
    """
    if past.is_recorded or draft.api != "DescribeGroups":
        return False
    (ours,), (theirs,) = mine["groups"], other["groups"]
    return theirs["group_state"] == "Dead" and ours["group_state"] in _FORMING


def another_leader(past: Past, draft: Draft, mine: Json, other: Json) -> bool:
    """Return whether join responses differ only in the leader, after the previous leader left."""
    if draft.api != "JoinGroup" or mine["leader"] == other["leader"]:
        return False
    if past.leader in (None, mine["leader"], other["leader"]):
        return False
    elected = ("leader", "members")
    return all(mine[name] == other[name] for name in mine if name not in elected)
