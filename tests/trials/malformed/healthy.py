"""A healthy group, which must get correct responses although it shares commits with bad ones."""

from __future__ import annotations

from typing import Any

from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from tests.trials.malformed.debts import TrialFailed

GROUP = "healthy"
_SESSION_MS = 10_000
# A version in which the first join makes a member, without a second one under the id it was given.
_ONE_STEP_JOIN = 3


class HealthyGroup:
    """A member that joins, syncs, and then heartbeats, commits and fetches in every round."""

    def __init__(self) -> None:
        self._round = 0
        self._member_id = ""
        self._asked: set[str] = set()
        self._answers: dict[str, dict[str, Any]] = {}

    @property
    def is_stable(self) -> bool:
        """Whether the group is stored with its member, so that a start brings both back."""
        return self._round > 2

    def requests(self, now: int) -> list[RequestEvent]:
        """Return the requests of the next round, in order, sent at `now` (ms)."""
        self._round += 1
        self._answers.clear()
        if self._round == 1:
            join = JoinGroupRequest(
                session_timeout_ms=_SESSION_MS,
                protocol_type="consumer",
                protocols=(JoinGroupProtocol("range", b""),),
            )
            made = [self._request("join_group", now, join, _ONE_STEP_JOIN)]
        elif self._round == 2:
            sync = SyncGroupRequest(
                1, self._member_id, assignments=(SyncGroupAssignment(self._member_id, b"all"),)
            )
            made = [self._request("sync_group", now, sync, 3)]
        else:
            committed = OffsetCommitPartition(0, self._round, committed_metadata="sound")
            commit = OffsetCommitRequest(
                generation_id=1,
                member_id=self._member_id,
                topics=(OffsetCommitTopic("t", (committed,)),),
            )
            made = [
                self._request("heartbeat", now, HeartbeatRequest(1, self._member_id)),
                self._request("offset_commit", now, commit),
                self._request("offset_fetch", now, OffsetFetchRequest()),
            ]
        self._asked = {request.request_id for request in made}
        return made

    def _request(self, api: str, now: int, body: Any, version: int | None = None) -> RequestEvent:
        return RequestEvent(f"{api}-{self._round}", GROUP, api, version, sent_at=now, **{api: body})

    def answer(self, response: dict[str, Any]) -> None:
        """Take a row of `responses` that is of this group."""
        self._answers[response["request_id"]] = response

    def check(self) -> int:
        """See that the round was answered, and right; returns its number of requests."""
        if self._answers.keys() != self._asked:
            raise TrialFailed(f"the healthy group asked {self._asked}, answered: {self._answers}")
        for request_id, answer in self._answers.items():
            if answer["error_code"]:
                raise TrialFailed(f"the healthy group's {request_id} was answered {answer}")
            if answer["join_group"] is not None:
                self._member_id = answer["join_group"]["member_id"]
            if answer["offset_fetch"] is not None:
                (topic,) = answer["offset_fetch"]["topics"]
                (partition,) = topic["partitions"]
                if (partition["committed_offset"], partition["metadata"]) != (self._round, "sound"):
                    raise TrialFailed(f"the healthy group committed {self._round}: {partition}")
        return len(self._asked)
