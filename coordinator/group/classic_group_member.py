"""One member of a group. Source: Apache Kafka, ClassicGroupMember."""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.schemas.messages import JoinGroupProtocol


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
