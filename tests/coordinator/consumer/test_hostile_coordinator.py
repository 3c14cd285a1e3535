"""A consumer whose coordinator answers whatever it likes, late, out of order, or not at all."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from group_coordinator.coordinator.consumer.errors import ConsumerError
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    CommitDone,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.positions import OffsetAndMetadata
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    decode_assignment,
    encode_assignment,
)
from group_coordinator.coordinator.consumer.state import Generation, MemberState
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import Lone
from tests.examples import examples

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SHARES = st.sets(st.sampled_from(PARTITIONS))
STRATEGIES = ("range", "cooperative-sticky", "sticky", "range,cooperative-sticky")
HEARTBEAT_MS, SESSION_MS, POLL_MS, REQUEST_MS = 1_000, 6_000, 10_000, 3_000
BACKOFF_MS = 1_000
# The join itself, and what may come before it: the request that is out, and a backoff.
STUCK_MS = 2 * (POLL_MS + 5_000 + REQUEST_MS + BACKOFF_MS)
CODES = (
    ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_AUTHORIZATION_FAILED,
)  # fmt: skip
# The coordinator waits for heartbeats of a member in these.
KNOWN = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
MS = st.sampled_from((0, 0, 500, 1_000, 4_000))
# Which request is answered, by its age, and how.
ANSWERS = st.tuples(st.integers(0, 3), st.sampled_from(CODES), st.booleans(), SHARES, st.booleans())


class Hostile(RuleBasedStateMachine):
    """A consumer, and what it was told: each join has a generation of its own."""

    @initialize(strategy=st.sampled_from(STRATEGIES), commits=st.booleans())
    def begin(self, strategy: str, commits: bool) -> None:
        self.one = Lone(
            catalogue={"t": len(PARTITIONS)},
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=POLL_MS,
            request_timeout_ms=REQUEST_MS,
            enable_auto_commit=commits,
            auto_commit_interval_ms=1_000,
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy,
        )
        self.generations, self.members, self.offsets = count(1), count(1), count(1)
        # Of each generation what SyncGroup gave, of each commit in which generation it was asked
        # for; the partitions that the listener was told of.
        self.given: dict[int, set[TopicPartition]] = {}
        self.asked_in: dict[int, Generation] = {}
        self.owned: set[TopicPartition] = set()
        self.seen: list[m.RequestEvent] = []

    # --- the coordinator --------------------------------------------------------------------------

    def take(self) -> list[m.RequestEvent]:
        """The requests that are not answered; new ones are looked at."""
        known = len(self.one.unanswered)
        self.one.requests("")
        for request in self.one.unanswered[known:]:
            self.seen.append(request)
            if request.offset_commit is not None:
                self.check_commit(request.offset_commit)
        return self.one.unanswered

    def check_commit(self, body: m.OffsetCommitRequest) -> None:
        """It is of the member's generation, which has an assignment, and of what the member has."""
        sent = self.one.consumer.generation
        assert (body.generation_id, body.member_id) == (sent.generation_id, sent.member_id)
        assert sent.generation_id in self.given
        for topic in body.topics:
            for each in topic.partitions:
                assert TopicPartition(topic.name, each.partition_index) in self.owned
                assert self.asked_in.get(each.committed_offset, sent) == sent

    def respond(
        self, age: int, code: ErrorCode, leads: bool, share: set[TopicPartition], renames: bool
    ) -> None:
        waiting = self.take()
        if not waiting:
            return
        request = waiting[-1 - age % len(waiting)]
        body: Any = None
        if request.join_group is not None:
            body = self._joined(request.join_group, leads, renames)
        elif request.sync_group is not None and code is ErrorCode.NONE:
            body = self._synced(request.sync_group, share)
        elif request.find_coordinator is not None and code is ErrorCode.NONE:
            body = m.FindCoordinatorResponse(0, 1, "host", 9)
        elif request.offset_fetch is not None:
            body = m.OffsetFetchResponse(
                tuple(
                    m.OffsetFetchTopicResult(
                        "t", (m.OffsetFetchPartition(each.partition, 1_000_000, -1, ""),)
                    )
                    for each in PARTITIONS
                )
            )
        elif request.offset_commit is not None:
            body = m.OffsetCommitResponse(
                tuple(
                    m.TopicResult(
                        topic.name,
                        tuple(
                            m.PartitionResult(each.partition_index, int(code))
                            for each in topic.partitions
                        ),
                    )
                    for topic in request.offset_commit.topics
                )
            )
        self.one.answer(request, code, body)

    def _joined(self, asked: m.JoinGroupRequest, leads: bool, renames: bool) -> Any:
        member_id = asked.member_id
        if renames or not member_id:
            member_id = f"member-{next(self.members)}"
        protocol = asked.protocols[0]
        members = (m.JoinGroupResponseMember(member_id, None, protocol.metadata),)
        return m.JoinGroupResponse(
            generation_id=next(self.generations),
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
        self.given.setdefault(asked.generation_id, set(share))
        share = self.given[asked.generation_id]
        return m.SyncGroupResponse(assignment=encode_assignment(Assignment(tuple(sorted(share)))))

    @rule(answer=ANSWERS)
    def answer(self, answer: tuple[Any, ...]) -> None:
        self.respond(*answer)

    @rule(rounds=st.integers(1, 5), share=SHARES, leads=st.booleans())
    def go_well(self, rounds: int, share: set[TopicPartition], leads: bool) -> None:
        """Some steps of a rebalance, or all: what is asked is answered well and at once."""
        for _ in range(rounds):
            self.poll()
            for _ in range(len(self.take())):
                self.respond(-1, ErrorCode.NONE, leads, share, False)

    @rule(age=st.integers(0, 3))
    def lose(self, age: int) -> None:
        """An answer that never comes."""
        waiting = self.take()
        if waiting:
            waiting.pop(-1 - age % len(waiting))

    # --- the consumer's process -------------------------------------------------------------------

    @rule(ms=MS)
    def wait(self, ms: int) -> None:
        self.one.advance(ms)
        self.take()

    @rule(ms=MS, meanwhile=st.none() | ANSWERS)
    def poll(self, ms: int = 0, meanwhile: tuple[Any, ...] | None = None) -> None:
        """The user's thread polls; in the listener time passes, and an answer may come."""
        one = self.one
        try:
            while (event := one.consumer.poll(one.now)) is not None:
                self.take()
                if isinstance(event, CommitDone):
                    continue
                try:
                    self._listen(event)
                    one.advance(ms)
                    if meanwhile is not None:
                        self.respond(*meanwhile)
                finally:
                    one.consumer.callback_done()
        except ConsumerError:
            # The user may poll again.
            pass
        for each in list(one.consumer.subscription.awaiting_reset()):
            one.consumer.subscription.seek(each, 0)
        self.take()

    def _listen(self, event: Any) -> None:
        if isinstance(event, CallAssignor):
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

    @precondition(lambda self: self.owned)
    @rule()
    def commit(self) -> None:
        """Each commit has an offset of its own."""
        consumer, offset = self.one.consumer, next(self.offsets)
        self.asked_in[offset] = consumer.generation
        offsets = {each: OffsetAndMetadata(offset) for each in self.owned}
        with suppress(ConsumerError):
            consumer.commit_async(self.one.now, offsets)
        self.take()

    # --- what must be so --------------------------------------------------------------------------

    @precondition(lambda self: self.one.consumer.state in KNOWN)
    @rule()
    def heartbeats_go_on(self) -> None:
        """While the coordinator is known one is sent in each interval, or backoff."""
        consumer, before = self.one.consumer, len(self.seen)
        if consumer._lookup.node is None:
            return
        self.wait(max(HEARTBEAT_MS, BACKOFF_MS))
        if consumer.state in KNOWN and consumer._lookup.node is not None:
            assert any(each.api == "heartbeat" for each in self.seen[before:])

    def silence(self) -> None:
        """A coordinator that is silent is doubted, whatever the member waits for."""
        before = len(self.seen)
        for _ in range(STUCK_MS // 500):
            self.poll()
            self.wait(500)
        assert "find_coordinator" in [each.api for each in self.seen[before:]]

    @invariant()
    def the_listener_knows_what_is_assigned(self) -> None:
        if hasattr(self, "one"):
            assert self.owned == set(self.one.consumer.assignment)

    def teardown(self) -> None:
        """In the end a coordinator that answers has a member, with what that is given."""
        if not hasattr(self, "one"):
            return
        self.silence()
        for _ in range(STUCK_MS // 500):
            self.go_well(1, set(PARTITIONS[:2]), False)
            self.wait(500)
        consumer = self.one.consumer
        assert consumer.state is MemberState.STABLE
        assert not consumer.is_rejoining
        assert self.owned == self.given[consumer.generation.generation_id]


class TestHostile(Hostile.TestCase):
    settings = examples(50, stateful_step_count=25, phases=(Phase.explicit, Phase.generate))
