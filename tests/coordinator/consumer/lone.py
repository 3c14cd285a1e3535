"""One consumer with the test as its coordinator, which gives each response at a chosen time.

one = Lone()
one.find()
one.join(assigned=[T0])
one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from group_coordinator.coordinator.consumer.consumer_coordinator import ConsumerCoordinator
from group_coordinator.coordinator.consumer.consumer_settings import parse_settings
from group_coordinator.coordinator.consumer.events import CallAssignor, Event
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode

GROUP = "groupId"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
MAX_POLL_MS = 60_000
REQUEST_MS = 30_000
BACKOFF_MS = 100
CATALOGUE = MappingProxyType({"t": 2})
SETTINGS: dict[str, Any] = {
    "group.id": GROUP,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "max.poll.interval.ms": MAX_POLL_MS,
    "enable.auto.commit": False,
}
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


class Lone:
    """A consumer, by default of `t` with two partitions; settings with `_` for `.`."""

    def __init__(
        self,
        topics: Any = ("t",),
        catalogue: Mapping[str, int] | None = CATALOGUE,
        **settings: Any,
    ) -> None:
        self.now = 0
        named = {key.replace("_", "."): value for key, value in settings.items()}
        ids = count(1)
        self.consumer = ConsumerCoordinator(
            parse_settings({**SETTINGS, **named}),
            new_request_id=lambda: f"request-{next(ids)}",
            jitter=lambda: 0.5,
            now=0,
        )
        if topics is not None:
            self.consumer.subscribe(topics)
        if catalogue is not None:
            self.consumer.update_topics(catalogue)
        self.unanswered: list[m.RequestEvent] = []

    # --- time and threads -----------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Time passes, and the background thread does what falls due, when it falls due."""
        until = self.now + ms
        while (deadline := self.consumer.tick_deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.consumer.tick(self.now)
            assert self.consumer.tick_deadline != deadline, "a deadline passes without effect"
        self.now = until
        self.consumer.tick(until)

    def poll(self) -> list[Event]:
        """The user's thread polls until it must wait; its listener does nothing.

        Assignors are called, and that is no event of those returned.
        """
        events: list[Event] = []
        while (event := self.consumer.poll(self.now)) is not None:
            try:
                if isinstance(event, CallAssignor):
                    event.run()
                else:
                    events.append(event)
            finally:
                self.consumer.callback_done()
        return events

    # --- requests and answers -------------------------------------------------------------------

    def requests(self, api: str) -> list[m.RequestEvent]:
        """All requests of an API that are not answered."""
        self.unanswered += self.consumer.take_requests()
        return [one for one in self.unanswered if one.api == api]

    def sent(self, api: str) -> m.RequestEvent:
        """The one request of an API that is not answered."""
        (request,) = self.requests(api)
        return request

    def answer(
        self, request: m.RequestEvent, code: ErrorCode = ErrorCode.NONE, body: Any = None
    ) -> bool:
        """Answer a request; False if the consumer has given it up."""
        if request in self.unanswered:
            self.unanswered.remove(request)
        if body is None:
            body = _EMPTY.get(request.api)
        response = m.Response(
            request_id=request.request_id,
            group_id=GROUP,
            api=request.api,
            error_code=int(code),
            error=code.name,
            **{request.api: body},
        )
        return self.consumer.response(self.now, response)

    def find(self) -> None:
        """The coordinator is found."""
        self.poll()
        self.consumer.tick(self.now)
        self.answer(self.sent("find_coordinator"), body=m.FindCoordinatorResponse(0, 1, "host", 9))

    def answer_join(
        self,
        generation: int = 1,
        member_id: str = "member",
        protocol: str | None = None,
        leads: Iterable[m.JoinGroupResponseMember] = (),
        skip_assignment: bool = False,
    ) -> None:
        """Answer JoinGroup; `leads` are the members in the response to this one as the leader."""
        request = self.sent("join_group")
        assert request.join_group is not None
        members = tuple(leads)
        body = m.JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol or request.join_group.protocols[0].name,
            leader=member_id if members else "leader",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )
        self.answer(request, body=body)

    def answer_sync(self, assigned: Iterable[TopicPartition]) -> None:
        """SyncGroup succeeds."""
        blob = encode_assignment(Assignment(tuple(assigned)))
        self.answer(self.sent("sync_group"), body=m.SyncGroupResponse(assignment=blob))

    def join(
        self,
        assigned: Iterable[TopicPartition] = (T0, T1),
        generation: int = 1,
        member_id: str = "member",
    ) -> list[Event]:
        """Poll into the group as a follower; returns all events from here to the assignment."""
        events = self.poll()
        self.answer_join(generation, member_id)
        self.answer_sync(assigned)
        return events + self.poll()

    def member(self, assigned: Iterable[TopicPartition] = (T0, T1)) -> Lone:
        """Find the coordinator and join; the committed offsets are found to be 0."""
        self.find()
        self.join(assigned)
        self.answer_fetch(dict.fromkeys(assigned, 0))
        return self

    def answer_fetch(self, offsets: dict[TopicPartition, int]) -> None:
        """OffsetFetch succeeds."""
        topics = tuple(
            m.OffsetFetchTopicResult(
                one.topic, (m.OffsetFetchPartition(one.partition, offset, -1, ""),)
            )
            for one, offset in offsets.items()
        )
        self.answer(self.sent("offset_fetch"), body=m.OffsetFetchResponse(topics))
        self.poll()

    def answer_commit(self, code: ErrorCode = ErrorCode.NONE) -> bool:
        """The oldest OffsetCommit is answered, with one code for every partition."""
        request = self.requests("offset_commit")[0]
        assert request.offset_commit is not None
        topics = tuple(
            m.TopicResult(
                topic.name,
                tuple(m.PartitionResult(p.partition_index, int(code)) for p in topic.partitions),
            )
            for topic in request.offset_commit.topics
        )
        return self.answer(request, code, m.OffsetCommitResponse(topics))


_EMPTY: dict[str, Any] = {
    "find_coordinator": m.FindCoordinatorResponse(0, -1, "", -1),
    "join_group": m.JoinGroupResponse(),
    "sync_group": m.SyncGroupResponse(),
    "heartbeat": m.HeartbeatResponse(),
    "leave_group": m.LeaveGroupResponse(),
    "offset_commit": m.OffsetCommitResponse(),
    "offset_fetch": m.OffsetFetchResponse(),
}
