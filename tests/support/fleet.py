"""Members that only send requests: the benchmark makes a client's decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from group_coordinator.schemas.tables import RESPONSES

# The last version in which a member without an id joins in one step (KIP-394).
_ONE_STEP = 3
_SESSION_MS = 60_000
# The broker's default maximum: a fleet sends nothing during another machine's turn.
LONGEST_SESSION_MS = 1_800_000
# ConsumerProtocolSubscription version 0 of the topic "t", without user data.
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"
_ANSWER_TIMEOUT_S = 60.0
_MOMENT_S = 0.005
_COLUMNS = ["request_id", "api", "error_code", "responded_at", "join_group"]


class Member:
    """One member of a group, with its current id and generation."""

    def __init__(self, group_id: str, name: str, session_ms: int = _SESSION_MS) -> None:
        self.group_id = group_id
        self.name = name
        self.member_id = name
        self.generation = 1
        self._session_ms = session_ms
        self._sent = 0

    def _event(self, api: str, **fields: object) -> RequestEvent:
        self._sent += 1
        return RequestEvent(
            request_id=f"{self.group_id}/{self.name}/{self._sent}",
            group_id=self.group_id,
            api=api,
            client_id=self.name,
            client_host="/127.0.0.1",
            sent_at=clock_ms(),
            **fields,  # type: ignore[arg-type]
        )

    def join(self, again: bool = False) -> RequestEvent:
        """Return the request to join, in one step; with `again` it keeps the member id."""
        body = JoinGroupRequest(
            member_id=self.member_id if again else "",
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            protocol_type="consumer",
            protocols=(
                JoinGroupProtocol("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t" + bytes(4)),
            ),
        )
        return self._event("join_group", api_version=_ONE_STEP, join_group=body)

    def sync(self, assignments: tuple[SyncGroupAssignment, ...]) -> RequestEvent:
        """Return the request for the assignment; the leader's sync has all assignments."""
        body = SyncGroupRequest(self.generation, self.member_id, assignments=assignments)
        return self._event("sync_group", api_version=_ONE_STEP, sync_group=body)

    def commit(self, body: OffsetCommitRequest) -> RequestEvent:
        """Return the request to commit offsets."""
        return self._event("offset_commit", offset_commit=body)

    def fetch(self, body: OffsetFetchRequest) -> RequestEvent:
        """Return the request for committed offsets."""
        return self._event("offset_fetch", offset_fetch=body)

    def heartbeat(self) -> RequestEvent:
        """Return a heartbeat."""
        body = HeartbeatRequest(self.generation, self.member_id)
        return self._event("heartbeat", heartbeat=body)


def groups_of(
    name: str, numbers: Iterable[int], members: int, session_ms: int
) -> list[list[Member]]:
    """Return groups with these numbers and this many members each, which have not joined yet."""
    return [
        [Member(f"{name}-{g}", f"{name}-{g}-{m}", session_ms) for m in range(members)]
        for g in numbers
    ]


class Fleet:
    """`groups` groups of `members` members each, at one root; their ids begin with `name`.

    Fleets of one coordinator need different names.
    """

    def __init__(
        self,
        root: str,
        groups: int,
        members: int,
        name: str = "bench",
        session_ms: int = _SESSION_MS,
    ) -> None:
        self.root = root
        self.requests = RequestLog(root)
        self._tail = follow(table_uri(root, RESPONSES), _COLUMNS)
        self.groups = [
            [Member(f"{name}-{g}", f"member-{g}-{m}", session_ms) for m in range(members)]
            for g in range(groups)
        ]

    @property
    def members(self) -> list[Member]:
        """Return the members of all groups."""
        return [member for group in self.groups for member in group]

    def form_groups(self) -> None:
        """Join and sync all members, so that each group is Stable. Raises Failure."""
        self._exchange([(member, member.join()) for member in self.members], self._joined)
        syncs = []
        for group in self.groups:
            assignments = tuple(SyncGroupAssignment(m.member_id, b"\x00" * 32) for m in group)
            syncs += [(m, m.sync(assignments if m is group[0] else ())) for m in group]
        self._exchange(syncs, lambda _member, _body: None)

    @staticmethod
    def _joined(member: Member, body: dict[str, object] | None) -> None:
        if body is not None:
            member.member_id = str(body["member_id"])
            member.generation = int(str(body["generation_id"]))

    def _exchange(
        self,
        requests: list[tuple[Member, RequestEvent]],
        take: Callable[[Member, dict[str, object] | None], None],
    ) -> None:
        waiting = {event.request_id: member for member, event in requests}
        self.requests.append([event for _, event in requests])
        limit = time.monotonic() + _ANSWER_TIMEOUT_S
        while waiting:
            if time.monotonic() > limit:
                raise Failure(f"{len(waiting)} of {len(requests)} requests were not answered")
            for row in self.answers():
                member = waiting.pop(row["request_id"], None)
                if member is not None:
                    if row["error_code"]:
                        raise Failure(f"{row['request_id']} was answered {row['error_code']}")
                    take(member, row["join_group"])
            time.sleep(0.01)

    def answers(self) -> list[dict[str, Any]]:
        """Return the responses since the last call, with the fields that `Peer` names."""
        rows = self._tail.poll()
        return [] if rows is None else rows.to_pylist()


class FleetPeer:
    """The coordinator of a fleet as a `Peer`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def send(self, events: list[RequestEvent]) -> None:
        """Append requests, all in one commit."""
        if events:
            self._fleet.requests.append(events)

    def answers(self) -> list[dict[str, Any]]:
        """Return the responses since the last call; if there are none, wait a few ms for some."""
        rows = self._fleet.answers()
        if not rows:
            time.sleep(_MOMENT_S)
        return rows
