"""How far a member is in its group, and as what.

UNJOINED              not in the group, or no longer
                      -> PREPARING_REBALANCE  JoinGroup is sent
PREPARING_REBALANCE   JoinGroup is not answered yet; no heartbeats, the coordinator waits for us
                      -> COMPLETING_REBALANCE it is answered, SyncGroup is sent
COMPLETING_REBALANCE  SyncGroup is not answered yet; heartbeats
                      -> STABLE               it is answered
                      -> PREPARING_REBALANCE  it failed, and the member joins again
STABLE                heartbeats, commits
                      -> PREPARING_REBALANCE  the member joins again
any                   -> UNJOINED             the generation is lost, or the member leaves

Source: Kafka's AbstractCoordinator.MemberState and Generation.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from schemas.messages import NO_GENERATION, NO_MEMBER_ID


class MemberState(Enum):
    """How far the member is in the group."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


REBALANCING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)
HEARTBEATING = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)


class GroupMembershipOperation(Enum):
    """What becomes of the membership of a consumer that closes (KIP-1092)."""

    DEFAULT = "dynamic members leave, static ones stay until their session ends"
    LEAVE_GROUP = "leave"
    REMAIN_IN_GROUP = "stay until the session ends"


class Generation(Struct, frozen=True):
    """Which generation the member is of, under which id, and the assignor that it chose.

    After ILLEGAL_GENERATION the member id is kept, as it may still be good.
    """

    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether partitions owned under it must be taken for lost."""
        return self.generation_id == NO_GENERATION or self.member_id == NO_MEMBER_ID
