"""A coordinator that answers with any error code, and checks each request against its responses."""

from __future__ import annotations

from itertools import count
from typing import Any

from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    Event,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import Generation
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import Lone

# Which of the requests that wait is answered, by its age, and how.
Answer = tuple[int, ErrorCode, bool, set[TopicPartition], bool]
_LOST = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class Hostile:
    """A coordinator of one consumer, whose user and listener report to it.

    `topics` are those of the user's subscription, none after the user leaves. `owned` are the
    partitions that the listener was given. `asked_in` has the generation in which the commit of an
    offset was requested, `given` the assignment of SyncGroup in each generation, `seen` all
    requests.
    """

    def __init__(self, one: Lone, topics: set[str]) -> None:
        self.one, self.topics = one, topics
        self.polled_at = one.now
        self.owned: set[TopicPartition] = set()
        self.asked_in: dict[int, Generation] = {}
        self.given: dict[int, set[TopicPartition]] = {}
        self.seen: list[m.RequestEvent] = []
        self.is_fenced = False
        # The members of the coming JoinGroup response, as the assignors expect them.
        self.announced: set[str] = set()
        self._last_generation = 0
        self._members = count(1)
        # Earlier generations are over, because JoinGroup was sent since. Later lines: generations
        # that a response has ended for the member, and members that have left or were removed.
        self._over_before = 0
        self._over: set[tuple[int, str]] = set()
        self._out: set[str] = set()

    # --- requests ---------------------------------------------------------------------------------

    def take(self) -> list[m.RequestEvent]:
        """The requests that are not answered; new ones are looked at."""
        known = len(self.one.unanswered)
        self.one.requests("")
        for request in self.one.unanswered[known:]:
            self.seen.append(request)
            self._check(request)
        return self.one.unanswered

    def _check(self, request: m.RequestEvent) -> None:
        member_id, generation_id = _sender(request)
        if member_id is None:
            return
        assert not self.is_fenced, "another has its instance id"
        assert member_id not in self._out
        if generation_id is not None:
            assert generation_id > self._over_before, "the member has joined again since"
            assert (generation_id, member_id) not in self._over
        if request.join_group is not None:
            self._check_join(request.join_group)
        elif request.offset_commit is not None:
            self._check_commit(request.offset_commit)
        elif request.leave_group is not None:
            settings = self.one.consumer.settings
            assert settings.group_instance_id is None, "a static member stays"
            late_by = self.one.now - self.polled_at - settings.max_poll_interval_ms
            assert not self.topics or late_by >= 0, "its user has polled in time"
            self._out.add(member_id)

    def _check_join(self, body: m.JoinGroupRequest) -> None:
        """The user wants it; it tells what the listener knows; an eager member owns nothing."""
        assert self.topics
        for protocol in body.protocols:
            subscription = decode_subscription(protocol.metadata)
            assert set(subscription.topics) == self.announced
            assert set(subscription.owned_partitions) == self.owned
        if [each.name for each in body.protocols] != ["cooperative-sticky"]:
            assert not self.owned
        self._over_before = self._last_generation

    def _check_commit(self, body: m.OffsetCommitRequest) -> None:
        """It is of the member's generation, which has an assignment, and of what the member has."""
        sent = self.one.consumer.generation
        assert (body.generation_id, body.member_id) == (sent.generation_id, sent.member_id)
        assert sent.generation_id in self.given
        for topic in body.topics:
            for each in topic.partitions:
                assert TopicPartition(topic.name, each.partition_index) in self.owned
                assert self.asked_in.get(each.committed_offset, sent) == sent

    # --- responses --------------------------------------------------------------------------------

    def respond(
        self, age: int, code: ErrorCode, leads: bool, share: set[TopicPartition], renames: bool
    ) -> None:
        """Answer one of the requests that wait, if any does."""
        waiting = self.take()
        if not waiting:
            return
        request = waiting[-1 - age % len(waiting)]
        member_id, generation_id = _sender(request)
        if member_id is None and code is ErrorCode.FENCED_INSTANCE_ID:
            # No coordinator can say so of what names no member.
            return
        body: Any = None
        if request.join_group is not None:
            body = self._joined(request.join_group, leads, renames)
        elif request.sync_group is not None and code is ErrorCode.NONE:
            body = self._synced(request.sync_group, share)
        elif request.find_coordinator is not None and code is ErrorCode.NONE:
            body = m.FindCoordinatorResponse(0, 1, "host", 9)
        elif request.offset_fetch is not None:
            body = _fetched(request.offset_fetch)
        elif request.offset_commit is not None:
            body = _committed(request.offset_commit, code)
        generation = self.one.consumer.generation
        is_current = (generation_id, member_id) == (generation.generation_id, generation.member_id)
        if self.one.answer(request, code, body) and member_id and generation_id is not None:
            if code in _LOST:
                self._over.add((generation_id, member_id))
            if code is ErrorCode.UNKNOWN_MEMBER_ID and is_current:
                self._out.add(member_id)
            self.is_fenced |= code is ErrorCode.FENCED_INSTANCE_ID and is_current
        self.take()

    def _joined(self, asked: m.JoinGroupRequest, leads: bool, renames: bool) -> Any:
        """Return the response to a join; each join has another generation."""
        member_id = asked.member_id
        if renames or not member_id:
            member_id = f"member-{next(self._members)}"
        protocol = asked.protocols[0]
        members = (m.JoinGroupResponseMember(member_id, None, protocol.metadata),)
        self._last_generation += 1
        return m.JoinGroupResponse(
            generation_id=self._last_generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=member_id if leads else "another",
            member_id=member_id,
            members=members if leads else (),
        )

    def _synced(self, asked: m.SyncGroupRequest, share: set[TopicPartition]) -> Any:
        if asked.assignments:
            (own,) = asked.assignments
            share = set(decode_assignment(own.assignment).partitions)
        share = self.given.setdefault(asked.generation_id, set(share))
        return m.SyncGroupResponse(assignment=encode_assignment(Assignment(tuple(sorted(share)))))

    # --- the calls of the listener ----------------------------------------------------------------

    def listen(self, event: Event) -> None:
        """The user's code runs for an event of `poll`."""
        if isinstance(event, CallAssignor):
            self.announced = set(self.topics)
            event.run()
        elif isinstance(event, AssignPartitions):
            assert not self.owned & set(event.partitions)
            self.owned |= set(event.partitions)
            assert self.owned == self.given[event.generation_id]
        elif isinstance(event, RevokePartitions | LosePartitions):
            assert self.owned >= set(event.partitions)
            self.owned -= set(event.partitions)
            if isinstance(event, RevokePartitions):
                assert not self.one.consumer.generation.is_lost, "what is lost is not revoked"


def _sender(request: m.RequestEvent) -> tuple[str | None, int | None]:
    """The member id and the generation that a request of a member names."""
    body = request.sync_group or request.heartbeat or request.offset_commit
    if body is not None:
        return body.member_id, body.generation_id
    if request.leave_group is not None:
        return request.leave_group.members[0].member_id, None
    return (request.join_group.member_id if request.join_group is not None else None), None


def _fetched(asked: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    return m.OffsetFetchResponse(
        tuple(
            m.OffsetFetchTopicResult(
                topic.name,
                tuple(
                    m.OffsetFetchPartition(each, 1_000_000, -1, "")
                    for each in topic.partition_indexes
                ),
            )
            for topic in asked.topics or ()
        )
    )


def _committed(asked: m.OffsetCommitRequest, code: ErrorCode) -> m.OffsetCommitResponse:
    return m.OffsetCommitResponse(
        tuple(
            m.TopicResult(
                topic.name,
                tuple(
                    m.PartitionResult(each.partition_index, int(code)) for each in topic.partitions
                ),
            )
            for topic in asked.topics
        )
    )
