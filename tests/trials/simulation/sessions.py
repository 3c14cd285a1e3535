"""Sessions: the last request of each member, and whether an expired member expired too early."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.trials.simulation.promises import SESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.schemas.messages import RequestEvent, Response
    from group_coordinator.schemas.records import GroupEvent
    from tests.trials.simulation.batches import Batch, Batches, Reading
    from tests.trials.simulation.world import World


class _Renewal(NamedTuple):
    """The batch that last renewed a member's session."""

    process: str
    query_id: str
    reading: Reading


class _Expiry(NamedTuple):
    """A member that expired in a batch, and its heartbeats that were there when it was planned."""

    group_id: str
    member_id: str
    batch: Batch
    waiting: frozenset[str]


class Sessions:
    """The session of each member, as requests and responses show it."""

    def __init__(self, world: World, batches: Batches) -> None:
        self._world = world
        self._batches = batches
        # The requests, and when the first row of each was committed, true ms.
        self._asked: dict[str, tuple[RequestEvent, float]] = {}
        self._answered_in: dict[str, Batch | None] = {}
        self._open_by_member: dict[str, set[str]] = defaultdict(set)
        self._renewed: dict[tuple[str, str], _Renewal] = {}
        # In which batch a group's members were last all given a new generation.
        self._elected_in: dict[str, Batch | None] = {}
        self._expiries: list[_Expiry] = []
        self._sessions: dict[str, int] = {}
        self._lost: set[str] = set()
        # The intervals in which requests could not be read, true ms.
        self._unreadable: list[tuple[float, float]] = []

    def asked(self, event: RequestEvent, at: float) -> None:
        """Learn of a request that was committed, true ms."""
        self._asked[event.request_id] = event, at
        member_id = member_of(event)
        if member_id:
            self._open_by_member[member_id].add(event.request_id)

    def unreadable(self) -> None:
        """Record that requests cannot be read or written from now on."""
        self._unreadable.append((self._world.now, inf))

    def readable(self) -> None:
        """Learn that requests can be read again."""
        if self._unreadable and self._unreadable[-1][1] == inf:
            self._unreadable[-1] = self._unreadable[-1][0], self._world.now

    def lost(self, request_id: str) -> None:
        """Record that a request is no longer in its table, so coordinators need not read it."""
        self._lost.add(request_id)
        if request_id in self._asked:
            member_id = member_of(self._asked[request_id][0])
            if member_id:
                self._open_by_member[member_id].discard(request_id)

    def elected(self, batch: Batch | None, group_id: str) -> None:
        """Record that all members of a group got a new generation."""
        self._elected_in[group_id] = batch

    def loaded(self, group_id: str) -> None:
        """Forget a loaded group's renewals: its sessions restart by its coordinator's clock."""
        for key in [key for key in self._renewed if key[0] == group_id]:
            del self._renewed[key]

    def answered(self, batch: Batch | None, event: RequestEvent, response: Response) -> None:
        """Learn of an answer: it may be a sign of life of a member."""
        self._answered_in[event.request_id] = batch
        member_id = member_of(event)
        if member_id:
            self._open_by_member[member_id].discard(event.request_id)
        join = event.join_group
        if response.error_code or batch is None or response.responded_at is None:
            return
        if join is not None and response.join_group is not None:
            member_id = response.join_group.member_id
            self._sessions[member_id] = join.session_timeout_ms
            # A join that is answered with the present generation renews nothing, in Kafka too.
            if self._elected_in.get(response.group_id) != batch:
                return
        # In Kafka 4.1 a sync to a stable group renews nothing.
        if member_id and response.api in ("join_group", "heartbeat"):
            process, _ = self._batches.writer_of(batch)
            self._renewed[response.group_id, member_id] = _Renewal(
                process, batch[0], self._batches.reading_of(batch)
            )

    def expired(self, batch: Batch | None, event: GroupEvent) -> None:
        """Check that a member did not expire within its session, by its coordinator's batch times.

        A clock that is set back does not extend a session: true time counts as well.
        """
        assert event.member_id is not None
        assert batch is not None
        process, _ = self._batches.writer_of(batch)
        session_ms = self._sessions.get(event.member_id)
        renewed = self._renewed.get((event.group_id, event.member_id))
        reading = self._batches.reading_of(batch)
        self._world.check(SESSIONS)
        if session_ms is not None and renewed is not None and renewed.process == process:
            by_clock = event.at - renewed.reading.time_ms
            if renewed.query_id == batch[0]:
                by_clock = reading.elapsed_ms - renewed.reading.elapsed_ms
            silent_ms = max(by_clock, reading.at - renewed.reading.at)
            if silent_ms < session_ms:
                self._world.violate(
                    SESSIONS,
                    f"member {event.member_id} of {event.group_id!r} expired {silent_ms:.0f} ms "
                    f"after it was heard of, within its session of {session_ms} ms",
                )
        waiting = frozenset(
            request_id
            for request_id in self._open_by_member[event.member_id]
            if self._waits(request_id, event.group_id, reading.at)
        )
        self._expiries.append(_Expiry(event.group_id, event.member_id, batch, waiting))

    def _waits(self, request_id: str, group_id: str, since: float) -> bool:
        event, at = self._asked[request_id]
        if any(begun <= since <= ended for begun, ended in self._unreadable):
            return False
        return event.heartbeat is not None and event.group_id == group_id and at < since

    def judge(self, is_over: Callable[[Batch], bool]) -> None:
        """No member expires in a batch while a heartbeat of its waits that was there before it."""
        for expiry in [each for each in self._expiries if is_over(each.batch)]:
            self._expiries.remove(expiry)
            for request_id in sorted(expiry.waiting - self._lost):
                if self._answered_in.get(request_id) != expiry.batch:
                    ago = self._batches.reading_of(expiry.batch).at - self._asked[request_id][1]
                    self._world.violate(
                        SESSIONS,
                        f"member {expiry.member_id} of {expiry.group_id!r} expired in batch "
                        f"{expiry.batch[1]}, which read the requests {ago:.0f} ms after its "
                        f"heartbeat {request_id!r} was written, and did not take it",
                    )


def member_of(event: RequestEvent) -> str | None:
    """Return the member id of a request; None if it has no member, or a new one."""
    body: Any = event.heartbeat or event.sync_group or event.join_group or event.offset_commit
    return None if body is None else body.member_id
