"""Members that stay alive during faults of their coordinators, and their acknowledged requests."""

from __future__ import annotations

from collections import Counter

from deltalake import DeltaTable

from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from tests.support.fleet import LONGEST_SESSION_MS, Fleet, Member
from tests.waiting import wait_until

GROUPS, MEMBERS = 3, 4
WAIT_S = 120.0


class LiveFleet:
    """Members that send heartbeats and commits, and remember the acknowledged ones."""

    def __init__(self, root: str) -> None:
        self.root = root
        # Sessions are longer than a start on an overloaded machine.
        self.fleet = Fleet(root, GROUPS, MEMBERS, session_ms=LONGEST_SESSION_MS)
        self.asked: dict[str, tuple[Member, int | None]] = {}
        self.answers: Counter[str] = Counter()
        self.errors: list[tuple[str, int]] = []
        self.acknowledged: dict[str, int] = {}
        self._next = 0

    def ask(self) -> None:
        """Send a heartbeat of each member, and a commit of the first member of each group."""
        requests = []
        for group in self.fleet.groups:
            self._next += 1
            requests.append(self._remember(group[0], self._commit(group[0]), self._next))
            requests += [self._remember(member, member.heartbeat(), None) for member in group]
        self.fleet.requests.append(requests)

    def _commit(self, member: Member) -> RequestEvent:
        partition = OffsetCommitPartition(0, self._next)
        body = OffsetCommitRequest(
            generation_id=member.generation,
            member_id=member.member_id,
            topics=(OffsetCommitTopic("t", (partition,)),),
        )
        return member.commit(body)

    def _remember(self, member: Member, event: RequestEvent, offset: int | None) -> RequestEvent:
        self.asked[event.request_id] = (member, offset)
        return event

    def listen(self) -> None:
        for row in self.fleet.answers():
            asked = self.asked.get(row["request_id"])
            if asked is None:
                continue
            self.answers[row["request_id"]] += 1
            member, offset = asked
            if row["error_code"]:
                self.errors.append((row["request_id"], row["error_code"]))
            elif offset is not None:
                before = self.acknowledged.get(member.group_id, -1)
                self.acknowledged[member.group_id] = max(before, offset)

    def await_all(self) -> None:
        wait_until(
            lambda: f"{len(self.asked) - len(self.answers)} are unanswered",
            lambda: len(self.answers) >= len(self.asked),
            WAIT_S,
            meanwhile=self.listen,
        )


def committed_offsets(root: str) -> dict[str, int]:
    """Return the newest committed offset of each group, according to the log."""
    rows = DeltaTable(f"{root}/offsets_topic").to_pyarrow_table().to_pylist()
    newest: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row["record_type"] == "offset_commit":
            found = (row["log_offset"], row["offset_commit"]["offset"])
            newest[row["group_id"]] = max(newest.get(row["group_id"], found), found)
    return {group_id: offset for group_id, (_, offset) in newest.items()}
