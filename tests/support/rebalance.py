"""Members of groups that become Stable as fast as their responses come.

They act as clients: they join, sync the leader's assignment, and join again when they receive a
rebalance error. But they do not wait between heartbeats: a member of a group that is not Stable yet
sends the next heartbeat as soon as the last one is answered. So the measurement contains the
coordinator's time, and not the heartbeat interval.
"""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct, structs

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import RequestEvent, SyncGroupAssignment
from tests.support.fleet import Fleet, FleetPeer, Member
from tests.support.peer import NOT_YET, Peer

_TIMEOUT_S = 120.0
_ASSIGNMENT = b"\x00" * 32


class Passage(Struct):
    """One rebalance: its seconds, and the batches in which it was answered."""

    seconds: float
    batches: int


class Rebalance:
    """The members of groups that become Stable, and their requests."""

    def __init__(self, peer: Peer, members: list[Member]) -> None:
        self._peer = peer
        self._members = members
        self._waiting: dict[str, tuple[Member, RequestEvent]] = {}
        # The generation in which each member, by name, last got its assignment.
        self._synced: dict[str, int] = {}
        self._out: list[RequestEvent] = []

    def run(self, newcomers: list[Member]) -> Passage:
        """Let the newcomers join, and the others notice, until all are Stable.

        Raises Failure on an error that is not part of a rebalance, and on a timeout.
        """
        batches = set()
        began = time.perf_counter()
        for member in newcomers:
            self._ask(member, member.join())
        for member in self._members:
            if member not in newcomers:
                self._ask(member, member.heartbeat())
        while not self._is_stable():
            if time.perf_counter() - began > _TIMEOUT_S:
                raise Failure(f"no Stable group of {len(self._members)} after {_TIMEOUT_S:.0f} s")
            self._peer.send(self._out)
            self._out = []
            for row in self._peer.answers():
                member, event = self._waiting.pop(row["request_id"])
                self._take(member, event, row)
                batches.add(row["responded_at"])
        seconds = time.perf_counter() - began
        # Wait for the remaining responses, so that the peer's next user does not get them.
        while self._waiting.keys() - {event.request_id for event in self._out}:
            for row in self._peer.answers():
                del self._waiting[row["request_id"]]
        self._out = []
        self._waiting = {}
        return Passage(seconds, len(batches - {None}))

    def _is_stable(self) -> bool:
        generations: dict[str, int] = {}
        for member in self._members:
            known = generations.get(member.group_id, 0)
            generations[member.group_id] = max(known, member.generation)
        return all(
            self._synced.get(member.name) == generations[member.group_id]
            for member in self._members
        )

    def _ask(self, member: Member, event: RequestEvent) -> None:
        self._waiting[event.request_id] = (member, event)
        self._out.append(event)

    def _take(self, member: Member, event: RequestEvent, row: dict[str, Any]) -> None:
        code = row["error_code"]
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._ask(member, member.join(again=True))
        elif code in NOT_YET:
            self._ask(member, structs.replace(event, request_id=f"{event.request_id}+"))
        elif code != ErrorCode.NONE:
            raise Failure(
                f"{event.api} of {member.name} was answered {ERROR_NAMES.get(code, code)}"
            )
        elif event.api == "join_group":
            body = row["join_group"]
            member.member_id, member.generation = body["member_id"], body["generation_id"]
            everybody = body["members"] if body["leader"] == member.member_id else ()
            assignments = tuple(
                SyncGroupAssignment(each["member_id"], _ASSIGNMENT) for each in everybody
            )
            self._ask(member, member.sync(assignments))
        else:
            if event.api == "sync_group":
                self._synced[member.name] = member.generation
            self._ask(member, member.heartbeat())


def form(fleet: Fleet) -> None:
    """Let each group of a fleet that has not joined yet become Stable. Raises Failure."""
    Rebalance(FleetPeer(fleet), fleet.members).run(fleet.members)
