"""A consumer with a coordinator that answers anything, late, out of order, or not at all."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    FencedInstanceIdError,
)
from group_coordinator.coordinator.consumer.events import CommitDone
from group_coordinator.coordinator.consumer.member_state import MemberState
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.hostile import Answer, Hostile
from tests.coordinator.consumer.lone import Lone
from tests.examples import examples

PARTITIONS = [*(TopicPartition("t", number) for number in range(3)), TopicPartition("u", 0)]
SHARES = st.sets(st.sampled_from(PARTITIONS))
TOPICS = st.sampled_from(({"t"}, {"t", "u"}, {"u"}))
STRATEGIES = ("range", "cooperative-sticky", "sticky", "range,cooperative-sticky")
INSTANCES: st.SearchStrategy[dict[str, str]] = st.sampled_from(({}, {"group_instance_id": "one"}))
HEARTBEAT_MS, SESSION_MS, POLL_MS, REQUEST_MS = 1_000, 6_000, 10_000, 3_000
BACKOFF_MS = 1_000
# The join itself, and what may come before it: the request that is out, and a backoff.
STUCK_MS = 2 * (POLL_MS + 5_000 + REQUEST_MS + BACKOFF_MS)
CODES = (
    ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_AUTHORIZATION_FAILED,
)  # fmt: skip
# The coordinator waits for heartbeats of a member in these.
KNOWN = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
MS = st.sampled_from((0, 0, 500, 1_000, 4_000))
ANSWERS = st.tuples(st.integers(0, 3), st.sampled_from(CODES), st.booleans(), SHARES, st.booleans())


class HostileLife(RuleBasedStateMachine):
    """What a consumer's user does, what its coordinator answers, and what must be so then."""

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        commits=st.booleans(),
        static=INSTANCES,
        joins=st.none() | st.booleans(),
    )
    def begin(
        self, strategy: str, commits: bool, static: dict[str, str], joins: bool | None
    ) -> None:
        """`joins`: the member has joined already, as the leader or not."""
        self.catalogue = {"t": 3, "u": 1}
        self.one = Lone(
            catalogue=self.catalogue,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=POLL_MS,
            request_timeout_ms=REQUEST_MS,
            enable_auto_commit=commits,
            auto_commit_interval_ms=1_000,
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy,
            **static,
        )
        self.hostile = Hostile(self.one, {"t"})
        self.consumer = self.one.consumer
        self.offsets = count(1)
        # Whether a call of the listener was not completed: the listener or the next poll raised.
        self.between = False
        self.closed_by: int | None = None
        if joins is not None:
            self.go_well(4, set(PARTITIONS[:2]), joins)

    # --- the coordinator --------------------------------------------------------------------------

    @rule(answer=ANSWERS)
    def answer(self, answer: Answer) -> None:
        self.hostile.respond(*answer)

    @rule(rounds=st.integers(1, 5), share=SHARES, leads=st.booleans())
    def go_well(self, rounds: int, share: set[TopicPartition], leads: bool) -> None:
        """Execute some or all steps of a rebalance; answer requests at once and without errors."""
        for _ in range(rounds):
            self.poll()
            for _ in range(len(self.hostile.take())):
                self.hostile.respond(-1, ErrorCode.NONE, leads, share, False)

    @rule(codes=st.lists(st.sampled_from(CODES), min_size=1, max_size=2))
    def heartbeat(self, codes: list[ErrorCode]) -> None:
        """Time passes for so many heartbeats, and the last one is answered first."""
        self.wait(len(codes) * HEARTBEAT_MS)
        for code in codes:
            self.hostile.respond(0, code, False, set(), False)

    @rule(age=st.integers(0, 3))
    def lose(self, age: int) -> None:
        """An answer that never comes."""
        waiting = self.hostile.take()
        if waiting:
            waiting.pop(-1 - age % len(waiting))

    # --- the consumer's process -------------------------------------------------------------------

    @rule(ms=MS)
    def wait(self, ms: int) -> None:
        self.one.advance(ms)
        self.hostile.take()

    @rule(ms=MS, meanwhile=st.none() | ANSWERS, raises=st.booleans())
    def poll(self, ms: int = 0, meanwhile: Answer | None = None, raises: bool = False) -> None:
        """The user's thread polls; in the listener time passes, and an answer may come.

        A fenced consumer tells it every time; one that leaves tells no error, and does leave.
        """
        self.hostile.polled_at = self.one.now
        if self.consumer.closed:
            return
        is_leaving = self.consumer.is_subscribed and not self.hostile.topics
        is_fenced = self.hostile.is_fenced and bool(self.hostile.topics)
        error = self.handle_events(ms, meanwhile, raises)
        assert error is None or not is_leaving
        if self.between and error is None:
            return
        assert isinstance(error, FencedInstanceIdError) or not is_fenced
        for each in list(self.consumer.subscription.awaiting_reset()):
            self.consumer.subscription.seek(each, 0)
        self.hostile.take()
        if self.closed_by is not None:
            assert self.consumer.closed or self.one.now < self.closed_by
            assert not self.consumer.closed or not self.hostile.owned
        elif not self.hostile.topics:
            assert not self.consumer.is_subscribed
            assert not self.hostile.owned

    def handle_events(
        self, ms: int, meanwhile: Answer | None, raises: bool
    ) -> ConsumerError | None:
        """Until there is no event, or the listener raises; returns what `poll` raised."""
        try:
            while (event := self.consumer.poll(self.one.now)) is not None:
                self.hostile.take()
                if isinstance(event, CommitDone):
                    continue
                self.between = True
                try:
                    self.hostile.listen(event)
                    self.one.advance(ms)
                    if meanwhile is not None:
                        self.hostile.respond(*meanwhile)
                finally:
                    self.consumer.callback_done()
                if raises:
                    return None
        except ConsumerError as error:
            # The user may poll again.
            self.hostile.is_fenced |= isinstance(error, FencedInstanceIdError)
            return error
        self.between = False
        return None

    @precondition(lambda self: self.hostile.owned)
    @rule()
    def commit(self) -> None:
        """Commit; each commit has another offset."""
        offset = next(self.offsets)
        self.hostile.asked_in[offset] = self.consumer.generation
        offsets = {each: OffsetAndMetadata(offset) for each in self.hostile.owned}
        with suppress(ConsumerError):
            self.consumer.commit_async(self.one.now, offsets)
        self.hostile.take()

    @precondition(lambda self: self.hostile.topics or not self.consumer.is_subscribed)
    @precondition(lambda self: self.closed_by is None)
    @rule(topics=TOPICS)
    def subscribe(self, topics: set[str]) -> None:
        self.consumer.subscribe(topics)
        self.hostile.topics = topics

    @precondition(lambda self: self.hostile.topics)
    @rule()
    def unsubscribe(self) -> None:
        self.consumer.unsubscribe(self.one.now)
        self.leaves()

    @precondition(lambda self: self.closed_by is None)
    @rule(ms=MS)
    def close(self, ms: int) -> None:
        self.closed_by = self.one.now + ms
        self.consumer.close(self.one.now, ms)
        self.leaves()

    def leaves(self) -> None:
        """Check that a call of the listener before it raised still holds."""
        self.between = False
        self.hostile.topics = set()
        self.hostile.take()

    @precondition(lambda self: "t" in self.hostile.topics and not self.hostile.is_fenced)
    @rule()
    def add_partition(self) -> None:
        """A leader makes the group join again; a follower does nothing."""
        hostile, consumer = self.hostile, self.consumer
        self.poll()
        is_settled = hostile.topics == hostile.announced and not consumer.is_rejoining
        self.catalogue["t"] += 1
        consumer.update_topics(self.catalogue)
        leads = consumer.is_leader
        self.poll()
        if is_settled:
            assert consumer.is_rejoining is leads

    # --- what must be so --------------------------------------------------------------------------

    @precondition(lambda self: self.consumer.state in KNOWN and not self.consumer.closed)
    @rule()
    def heartbeats_go_on(self) -> None:
        """While the coordinator is known one is sent in each interval, or backoff."""
        consumer, before = self.consumer, len(self.hostile.seen)
        if consumer._lookup.node is None:
            return
        self.wait(max(HEARTBEAT_MS, BACKOFF_MS))
        if consumer.state in KNOWN and consumer._lookup.node is not None:
            assert any(each.api == "heartbeat" for each in self.hostile.seen[before:])

    @invariant()
    def the_listener_knows_what_is_assigned(self) -> None:
        if hasattr(self, "one") and not self.between:
            assert self.hostile.owned == set(self.consumer.assignment)

    def silence(self) -> None:
        """A coordinator that is silent is doubted, whatever the member waits for."""
        before = len(self.hostile.seen)
        for _ in range(STUCK_MS // 500):
            self.poll()
            self.wait(500)
        assert "find_coordinator" in [each.api for each in self.hostile.seen[before:]]

    def settle(self, leads: bool) -> None:
        """In the end a coordinator that answers has a member, with what that is given."""
        share = {each for each in PARTITIONS[1:] if each.topic in self.hostile.topics}
        for _ in range(STUCK_MS // 500):
            self.go_well(1, share, leads)
            self.wait(500)
        consumer, hostile = self.consumer, self.hostile
        assert consumer.state is MemberState.STABLE
        assert not consumer.is_rejoining
        assert hostile.owned == hostile.given[consumer.generation.generation_id]

    def teardown(self) -> None:
        if not hasattr(self, "one"):
            return
        if self.closed_by is None:
            self.poll()
            if not self.hostile.topics:
                self.subscribe({"t"})
            if not self.hostile.is_fenced:
                self.silence()
                self.settle(leads=False)
                self.subscribe({"t", "u"} - self.hostile.topics or {"t"})
                self.settle(leads=True)
                topics = self.hostile.topics
                assert len(self.hostile.owned) == sum(self.catalogue[each] for each in topics)
            else:
                # Lost requests are no longer awaited.
                self.wait(STUCK_MS)
            self.check_close()
        for _ in range(9):
            self.wait(500)
            self.poll()
        assert self.consumer.closed
        before = len(self.hostile.seen)
        self.wait(STUCK_MS)
        assert not self.hostile.seen[before:], "it is closed"

    def check_close(self) -> None:
        """A member that is not static leaves once; closing ends when all is answered."""
        before = len(self.hostile.seen)
        self.close(4_000)
        for _ in range(4):
            self.go_well(1, set(), False)
        assert self.consumer.closed
        leaves = [each.api for each in self.hostile.seen[before:]].count("leave_group")
        is_static = self.consumer.settings.group_instance_id is not None
        assert leaves == (not is_static and not self.hostile.is_fenced)


class TestHostile(HostileLife.TestCase):
    settings = examples(100, stateful_step_count=25, phases=(Phase.explicit, Phase.generate))
