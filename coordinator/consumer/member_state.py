"""The states of a member in its group, and the member's generation.

UNJOINED              not in the group, or no longer in it
                      -> PREPARING_REBALANCE  JoinGroup is sent
PREPARING_REBALANCE   JoinGroup is in flight or is retried; no heartbeats, a parked join keeps the
                      session
                      -> COMPLETING_REBALANCE JoinGroup is answered, SyncGroup is sent
COMPLETING_REBALANCE  SyncGroup is in flight, or the leader assigns; heartbeats
                      -> STABLE               SyncGroup is answered
                      -> PREPARING_REBALANCE  SyncGroup failed, and the member joins again
STABLE                heartbeats, commits
                      -> PREPARING_REBALANCE  the member joins again
any                   -> UNJOINED             the generation is lost, or the member leaves

Source: Kafka's AbstractCoordinator.MemberState and Generation.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from group_coordinator.schemas.messages import NO_GENERATION, NO_MEMBER_ID


class MemberState(Enum):
    """The member's state in its group."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


REBALANCING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)
HEARTBEATING = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)


class GroupMembershipOperation(Enum):
    """The effect of closing a consumer on its membership (KIP-1092)."""

    DEFAULT = "dynamic members leave, static ones stay until their session ends"
    LEAVE_GROUP = "leave"
    REMAIN_IN_GROUP = "stay until the session ends"


class ConsumerGroupMetadata(Struct, frozen=True):
    """The identity of a member in one generation: Kafka's groupMetadata()."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Generation(Struct, frozen=True):
    """The member's generation, its id in it, and the assignor that the group selected.

    After ILLEGAL_GENERATION the member id is kept, because the coordinator may still know it.
    """

    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the generation is lost, so that its partitions may belong to other members."""
        return self.generation_id == NO_GENERATION or self.member_id == NO_MEMBER_ID
