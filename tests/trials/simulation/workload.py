"""Clients and their requests: group members, simple committers, administrators, writers of junk.

Every committed offset is a different number, so a response identifies its commit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from group_coordinator.schemas.messages import Response
    from tests.trials.simulation.clients import ClientProcess, ForeignProcess

TOPIC = "orders"
TOPIC_PARTITIONS = 6
_BACK_OFF_MS = 150.0
_PROTOCOL = "range"
# How often a member that has joined again commits once more for the generation before.
_STRAGGLING = 0.3
_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Offsets:
    """A source of unique offsets. `quiet` is set when clients must start nothing new."""

    def __init__(self) -> None:
        self._next = 0
        self.quiet = False

    def next(self) -> int:
        """Return an offset that was not committed before."""
        self._next += 1
        return self._next


class Client:
    """A client in a process, of one group."""

    def __init__(self, home: ClientProcess, group_id: str, offsets: Offsets) -> None:
        self.home = home
        self.group_id = group_id
        self.offsets = offsets
        self.chance: Random = home.world.rng(f"{home.process.name}/{group_id}/{home.new_id()}")

    def after(self, delay_ms: float, step: Callable[[], None]) -> None:
        """Take a step after a while, unless all is to be quiet then."""
        self.home.world.later(delay_ms, self.home.actor, lambda: self._unless_quiet(step))

    def _unless_quiet(self, step: Callable[[], None]) -> None:
        if not self.offsets.quiet:
            step()

    def ask(
        self,
        api: str,
        body: Any,
        on_answer: Callable[[Response], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        **more: Any,
    ) -> RequestEvent:
        """Send a request."""
        event = RequestEvent(
            request_id=self.home.new_id(),
            group_id=self.group_id,
            api=api,
            client_id="c",
            client_host="/h",
            sent_at=self.home.now_ms(),
            **{api: body},
            **more,
        )
        self.home.send(event, on_answer, on_lost)
        return event

    def commit_of(self, partition: int, **more: Any) -> OffsetCommitRequest:
        """Return a commit of a new offset."""
        offset = OffsetCommitPartition(partition, self.offsets.next(), committed_metadata="m")
        return OffsetCommitRequest(topics=(OffsetCommitTopic(TOPIC, (offset,)),), **more)


class Member(Client):
    """A member that follows the protocol; `instance_id` makes it a static one."""

    def __init__(
        self,
        home: ClientProcess,
        group_id: str,
        offsets: Offsets,
        session_ms: int,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._session_ms = session_ms
        self._instance_id = instance_id
        self._beat_ms = session_ms / 3
        self._member_id = ""
        self._generation = -1
        self._assigned: list[int] = []
        # Each joining begins another life: answers and timers of an earlier one count no more.
        self._life = 0
        self.after(self.chance.uniform(0, 1_500), self._join)

    # --- joining ----------------------------------------------------------------------------------

    def _join(self) -> None:
        self._life += 1
        life = self._life
        metadata = JoinGroupProtocol(_PROTOCOL, b"subscription")
        body = JoinGroupRequest(
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=(metadata,),
        )
        self.ask("join_group", body, lambda answer: self._joined(life, answer), self._give_up(life))

    def _joined(self, life: int, answer: Response) -> None:
        joined = answer.join_group
        if life != self._life or joined is None:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            self._unless_quiet(self._join)
        elif answer.error_code:
            self._recover(answer)
        else:
            before, self._generation = self._generation, joined.generation_id
            self._member_id = joined.member_id
            if before >= 0 and self.chance.random() < _STRAGGLING:
                self._commit_late(before)
            members = [member.member_id for member in joined.members]
            dealt = {
                name: list(range(at, TOPIC_PARTITIONS, len(members)))
                for at, name in enumerate(members)
            }
            body = SyncGroupRequest(
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=_PROTOCOL,
                assignments=tuple(
                    SyncGroupAssignment(name, msgspec.json.encode(mine))
                    for name, mine in dealt.items()
                ),
            )
            self.ask(
                "sync_group", body, lambda answer: self._synced(life, answer), self._give_up(life)
            )
            self._beat_later(life)

    def _commit_late(self, generation: int) -> None:
        """Commit for a generation that is over, as a thread does that does not know it yet."""
        body = self.commit_of(
            self.chance.randrange(TOPIC_PARTITIONS),
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        self.ask("offset_commit", body)

    def _synced(self, life: int, answer: Response) -> None:
        if life != self._life or answer.sync_group is None:
            return
        if answer.error_code:
            self._recover(answer)
            return
        self._assigned = msgspec.json.decode(answer.sync_group.assignment or b"[]", type=list[int])
        self._commit_later(life)

    def _recover(self, answer: Response) -> None:
        self._life += 1
        self._assigned = []
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return
        if code in _FORGOTTEN:
            self._member_id = ""
        self.after(1.0 if code in _REJOIN else _BACK_OFF_MS, self._join)

    def _give_up(self, life: int) -> Callable[[], None]:
        """Return the callback for a lost request of this life: the member joins again."""

        def join_again() -> None:
            if life == self._life:
                self._life += 1
                self._assigned = []
                self.after(1.0, self._join)

        return join_again

    # --- at work ----------------------------------------------------------------------------------

    def _beat_later(self, life: int) -> None:
        self.after(self._beat_ms, lambda: self._beat(life))

    def _beat(self, life: int) -> None:
        if life != self._life:
            return
        body = HeartbeatRequest(self._generation, self._member_id, self._instance_id)
        self.ask("heartbeat", body, lambda answer: self._beaten(life, answer), self._give_up(life))

    def _beaten(self, life: int, answer: Response) -> None:
        if life != self._life:
            return
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            # A member commits its progress before it rejoins.
            self._commit(life)
        if answer.error_code:
            self._recover(answer)
        elif self.chance.random() < 0.004:
            self._leave()
        else:
            self._beat_later(life)

    def _commit_later(self, life: int) -> None:
        self.after(self.chance.uniform(200, 1_500), lambda: self._commit_again(life))

    def _commit_again(self, life: int) -> None:
        if life == self._life:
            self._commit(life)
            self._commit_later(life)

    def _commit(self, life: int) -> None:
        if not self._assigned or life != self._life:
            return
        body = self.commit_of(
            self.chance.choice(self._assigned),
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        # The response is ignored, because the heartbeat's response has the state of the member.
        self.ask("offset_commit", body)
        if self.chance.random() < 0.2:
            wanted = None
            if self.chance.random() < 0.5:
                wanted = (OffsetFetchTopic(TOPIC, tuple(range(TOPIC_PARTITIONS))),)
            self.ask("offset_fetch", OffsetFetchRequest(wanted))

    def _leave(self) -> None:
        self._life += 1
        leaving = LeavingMember(self._member_id, self._instance_id, "enough")
        self.ask("leave_group", LeaveGroupRequest((leaving,)))
        self._member_id = ""
        self.after(self.chance.uniform(500, 3_000), self._join)


class Committer(Client):
    """A client that commits and fetches offsets without being a member of its group."""

    def __init__(
        self, home: ClientProcess, group_id: str, offsets: Offsets, every_ms: float
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._every_ms = every_ms
        self.after(self.chance.uniform(0, every_ms), self._step)

    def _step(self) -> None:
        draw = self.chance.random()
        if draw < 0.75:
            self.ask("offset_commit", self.commit_of(self.chance.randrange(TOPIC_PARTITIONS)))
        elif draw < 0.95:
            wanted = (OffsetFetchTopic(TOPIC, tuple(range(TOPIC_PARTITIONS))),)
            self.ask("offset_fetch", OffsetFetchRequest(wanted if draw < 0.85 else None))
        else:
            self.ask("find_coordinator", FindCoordinatorRequest(0))
        self.after(self.chance.uniform(0.5, 1.5) * self._every_ms, self._step)


class Admin(Client):
    """Describes, deletes offsets, and deletes the group."""

    def __init__(
        self, home: ClientProcess, group_id: str, offsets: Offsets, every_ms: float
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._every_ms = every_ms
        self.after(self.chance.uniform(0, 2 * every_ms), self._step)

    def _step(self) -> None:
        draw = self.chance.random()
        if draw < 0.5:
            self.ask("describe_groups", DescribeGroupsRequest())
        elif draw < 0.8:
            topics = (OffsetDeleteTopic(TOPIC, (self.chance.randrange(TOPIC_PARTITIONS),)),)
            self.ask("offset_delete", OffsetDeleteRequest(topics))
        else:
            self.ask("delete_groups", DeleteGroupsRequest())
        self.after(self.chance.uniform(0.5, 1.5) * self._every_ms, self._step)


class Repeater(Client):
    """A client that commits for one group at a high rate, by a writer that repeats its writes."""

    def __init__(
        self,
        home: ForeignProcess,
        group_id: str,
        offsets: Offsets,
        every_ms: float,
        at_once: int,
        within_ms: float,
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._foreign = home
        self._every_ms = every_ms
        self._at_once = at_once
        self._within_ms = within_ms
        self._written: deque[tuple[float, RequestEvent]] = deque()
        self.after(self.chance.uniform(0, every_ms), self._step)

    def _step(self) -> None:
        now = self.home.world.now
        for _ in range(self._at_once):
            body = self.commit_of(self.chance.randrange(TOPIC_PARTITIONS))
            self._written.append((now, self.ask("offset_commit", body)))
        while self._written and self._written[0][0] < now - self._within_ms:
            self._written.popleft()
        if self._written and self.chance.random() < 0.3:
            _, event = self.chance.choice(self._written)
            self._foreign.repeat(event)
        self.after(self._every_ms, self._step)


class Junk(Client):
    """A writer of invalid requests, which get an error or are rejected."""

    def __init__(
        self, home: ClientProcess, group_id: str, offsets: Offsets, every_ms: float
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._every_ms = every_ms
        self.after(self.chance.uniform(0, every_ms), self._step)

    def _step(self) -> None:
        draw = self.chance.randrange(4)
        if draw == 0:
            self.ask("heartbeat", None)
        elif draw == 1:
            self.ask("describe_groups", DescribeGroupsRequest(), api_version=99)
        elif draw == 2:
            event = RequestEvent(self.home.new_id(), self.group_id, "no_such_api")
            self.home.send(event)
        else:
            nobody: Any = None
            event = RequestEvent(self.home.new_id(), nobody, "heartbeat")
            self.home.send(event)
        self.after(self.chance.uniform(0.5, 1.5) * self._every_ms, self._step)
