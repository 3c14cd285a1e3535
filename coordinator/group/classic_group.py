"""The data of one group and its members, and queries on it.

A group is one Struct, so that it is stored and restored as one value. Nothing here answers requests
or writes records: the handlers do. Source: Apache Kafka, ClassicGroup, ClassicGroupMember.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from group_coordinator.coordinator.group.offsets import Offsets
from group_coordinator.coordinator.group.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    VALID_PREVIOUS_STATES,
    GroupState,
    IllegalTransition,
)
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import JoinGroupProtocol

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ParkedRequest(Struct, frozen=True, array_like=True, gc=False):
    """A join or sync that waits for its answer."""

    request_id: str
    api_version: int


class ClassicGroupMember(Struct, array_like=True, gc=False):
    """A member's data. Timeouts in ms; `session_deadline` (absolute ms) None: no session is timed.

    A member with a parked join or sync counts as alive: an expired session does not remove it, and
    the session restarts when the request is answered. A member `is_new` until its first join is
    answered; an expired session removes a new member even while its join is parked.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinGroupProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: ParkedRequest | None = None
    awaiting_sync: ParkedRequest | None = None
    session_deadline: int | None = None

    @property
    def is_static(self) -> bool:
        """Whether the member has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member stays in the group when its session deadline passes."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; raise LookupError if not offered."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise LookupError(f"member {self.member_id!r} does not support {protocol_name!r}")

    def vote(self, candidates: set[str]) -> str:
        """Return the first of the member's protocols that is in `candidates`.

        Raises LookupError if there is none.
        """
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise LookupError(f"member {self.member_id!r} supports none of {sorted(candidates)}")


class DelayedJoin(Struct, frozen=True, array_like=True):
    """The deadline (absolute ms) of the join phase of a rebalance.

    `initial` marks the initial rebalance delay of an Empty group (KIP-134): `delay_ms` is the
    current delay, `remaining_ms` is how much it may still be extended while members join.
    """

    deadline: int
    initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0


class ClassicGroup(Struct, array_like=True):
    """A group, its members, its timers and its committed offsets. Deadlines are absolute, in ms.

    `members` keeps the order of joining: if the leader leaves, the member that joined first leads.
    (Kafka takes the first one of its hash map.) `static_members` maps instance ids to member ids.
    `recorded`: the offsets topic holds a group record, so deleting the group needs a tombstone.
    `supported_protocols` counts the members that offer each protocol. `pending_joins` maps the ids
    assigned by a two-step join (KIP-394) to their deadlines. `pending_syncs` are the members that
    have not sent their SyncGroup. `announced_leader_id` is the leader in the newest audit event.
    `unknown_kinds` names the group's record kinds that this release does not know; such a group has
    no members and no offsets, and no request is decided for it.
    """

    group_id: str
    state: GroupState = EMPTY
    previous_state: GroupState = DEAD
    state_timestamp: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    supported_protocols: dict[str, int] = field(default_factory=dict)
    pending_joins: dict[str, int] = field(default_factory=dict)
    pending_syncs: list[str] = field(default_factory=list)
    num_awaiting_join: int = 0
    new_member_added: bool = False
    subscribed_topics: list[str] | None = None
    delayed_join: DelayedJoin | None = None
    sync_deadline: int | None = None
    recorded: bool = False
    offsets: Offsets = field(default_factory=Offsets)
    announced_leader_id: str | None = None
    unknown_kinds: str | None = None

    # --- state ----------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now: int) -> None:
        """Change the state at time `now` (ms). Raises IllegalTransition."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise IllegalTransition(self.group_id, self.state, state)
        self.previous_state = self.state
        self.state = state
        self.state_timestamp = now

    @property
    def can_rebalance(self) -> bool:
        """Whether the group may change to PreparingRebalance."""
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    @property
    def in_initial_rebalance(self) -> bool:
        """Whether the running rebalance is the first one since the group was Empty."""
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    @property
    def is_vacant(self) -> bool:
        """Whether the group has neither members nor offsets: the next cleanup deletes it."""
        is_empty = self.state is EMPTY and not self.offsets
        return is_empty and self.unknown_kinds is None

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the protocol type is "consumer", so that subscriptions can be parsed."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # --- members --------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member; the first one becomes the leader."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.awaiting_join is not None:
            self.num_awaiting_join += 1
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove a member or a pending member id; return the member, None for a pending id.

        If the leader is removed, the member that joined first becomes the leader. The caller must
        answer the removed member's parked requests.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.num_awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        if member_id in self.pending_syncs:
            self.pending_syncs.remove(member_id)
        return member

    def rename_static(self, old_id: str, new_id: str) -> ClassicGroupMember:
        """Give a static member a new id; it keeps its place in the order, and the leadership."""
        renamed = self.members[old_id]
        renamed.member_id = new_id
        self.members = {
            new_id if member_id == old_id else member_id: member
            for member_id, member in self.members.items()
        }
        if self.leader_id == old_id:
            self.leader_id = new_id
        if self.announced_leader_id == old_id:
            self.announced_leader_id = new_id
        if renamed.group_instance_id is not None:
            self.static_members[renamed.group_instance_id] = new_id
        self.pending_syncs = [
            new_id if member_id == old_id else member_id for member_id in self.pending_syncs
        ]
        return renamed

    def park_join(self, member: ClassicGroupMember, request: ParkedRequest) -> ParkedRequest | None:
        """Park a member's join until the rebalance ends; return the join that it replaces."""
        replaced = member.awaiting_join
        if replaced is None:
            self.num_awaiting_join += 1
        member.awaiting_join = request
        return replaced

    def unpark_join(self, member: ClassicGroupMember) -> ParkedRequest | None:
        """Remove and return the member's parked join; the caller must answer it."""
        parked = member.awaiting_join
        if parked is not None:
            self.num_awaiting_join -= 1
            member.awaiting_join = None
        return parked

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID for a member's request.

        FENCED_INSTANCE_ID: the instance id belongs to another member id.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member has a parked join, and no member id is pending."""
        return len(self.members) == self.num_awaiting_join and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members, at least 0."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def elect_joined_leader(self) -> bool:
        """Replace a leader without a parked join by the first member that has one.

        Returns False if no member has a parked join.
        """
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # --- protocols ------------------------------------------------------------------------------

    def supports_protocols(
        self, protocol_type: str, protocols: Iterable[JoinGroupProtocol]
    ) -> bool:
        """Whether a member that offers these protocols may join.

        The protocol type must be the group's, and all current members must offer one of the
        protocols. An Empty group accepts every non-empty type and list.
        """
        names = {protocol.name for protocol in protocols}
        if self.state is EMPTY:
            return bool(protocol_type) and bool(names)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.get(name, 0) == everybody for name in names
        )

    def set_protocols(
        self, member: ClassicGroupMember, protocols: tuple[JoinGroupProtocol, ...]
    ) -> None:
        """Replace the protocols that a member offers."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            count = self.supported_protocols.get(name, 0) + change
            if count:
                self.supported_protocols[name] = count
            else:
                del self.supported_protocols[name]

    def select_protocol(self) -> str:
        """Select a protocol by majority vote among those that all members offer.

        On a tie, the protocol that was voted for first wins. Raises LookupError if the group has no
        member.
        """
        everybody = len(self.members)
        candidates = {n for n, count in self.supported_protocols.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        if not votes:
            raise LookupError(
                f"group {self.group_id!r} has no members, so no protocol can be selected"
            )
        return votes.most_common(1)[0][0]

    def begin_generation(self, now: int) -> None:
        """Begin the next generation.

        The group selects a protocol and becomes CompletingRebalance; without members it becomes
        Empty.
        """
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.learn_subscriptions()
            self.transition_to(COMPLETING_REBALANCE, now)
        else:
            self.protocol_name = None
            self.learn_subscriptions()
            self.transition_to(EMPTY, now)
        self.pending_syncs.clear()

    def learn_subscriptions(self) -> None:
        """Set `subscribed_topics` from the members' subscriptions; None if one cannot be parsed."""
        if not self.uses_consumer_protocol:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = []
        elif self.protocol_name is not None:
            blobs = (member.metadata(self.protocol_name) for member in self.members.values())
            self.subscribed_topics = subscribed_topics(blobs)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member may consume the topic; True if a subscription cannot be parsed."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics


# --- subscriptions --------------------------------------------------------------------------------


def subscribed_topics(subscriptions: Iterable[bytes]) -> list[str] | None:
    """Return the sorted union of the topics of ConsumerProtocolSubscription blobs.

    None if a blob cannot be parsed. As in Kafka's coordinator, a blob is parsed as version 0,
    whatever version it claims, because every later version begins with version 0's fields.
    """
    topics: set[str] = set()
    try:
        for blob in subscriptions:
            topics.update(_topics(blob))
    except (struct.error, ValueError):
        return None
    return sorted(topics)


def _topics(blob: bytes) -> list[str]:
    (count,) = _INT32.unpack_from(blob, 2)
    if count < 0:
        raise ValueError("the list of topics is null")
    position = 6
    topics = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(blob, position)
        end = position + 2 + length
        if length < 0 or end > len(blob):
            raise ValueError("a topic name runs past the end")
        topics.append(blob[position + 2 : end].decode(errors="replace"))
        position = end
    # The user data is not read, but a blob that ends before it is not a subscription.
    (length,) = _INT32.unpack_from(blob, position)
    if position + 4 + length > len(blob):
        raise ValueError("the user data runs past the end")
    return topics
