"""Records keep their order and are written once, whatever a topic's table or its store does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator import (
    BufferExhausted,
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
    RecordMetadata,
    SentRecord,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.client import record_topics
from group_coordinator.pipeline.delta.log import CommitStateUnknown
from group_coordinator.pipeline.tables.topic_catalogue import delete_topic
from group_coordinator.pipeline.topics import (
    LogAppender,
    NewBatch,
    Outcome,
    ProducerIdManager,
    create_log_topic,
    log_topics,
    mark_deleted,
)
from tests.clocks import AheadClocks
from tests.examples import examples
from tests.pipeline.client.test_record_producer import LIMIT_S, producer, values_of
from tests.pipeline.topics.logs import make
from tests.waiting import wait_until

EIO = OSError(5, "Input/output error")
UNKNOWN = CommitStateUnknown("the store did not say")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


class Store:
    """A topic's appends, which fail as the test says: before they are made, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: list[str] = []
        self.attempts: list[list[int]] = []
        # Cleared, an append waits.
        self.goes_on, self.begun = threading.Event(), threading.Event()
        self.goes_on.set()
        append = LogAppender.append

        def fails(
            appender: LogAppender, batches: Sequence[NewBatch], until: float
        ) -> list[Outcome]:
            self.attempts.append([len(batch.values) for batch in batches])
            self.begun.set()
            assert self.goes_on.wait(LIMIT_S)
            fault = self.faults.pop(0) if self.faults else "none"
            if fault == "before":
                raise EIO
            outcomes = append(appender, batches, until)
            if fault == "after":
                raise UNKNOWN
            return outcomes

        monkeypatch.setattr(LogAppender, "append", fails)

    @contextmanager
    def holds(self) -> Any:
        """Have appends wait within the block."""
        self.goes_on.clear()
        try:
            yield
        finally:
            self.goes_on.set()


@pytest.fixture
def clocks() -> Iterator[AheadClocks]:
    clocks = AheadClocks()
    with clock.use(clocks):
        yield clocks


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


def outcome(sent: SentRecord) -> int | str:
    """The offset of a record, or the name of its error."""
    error = sent.exception(LIMIT_S)
    return sent.result().offset if error is None else type(error).__name__


FAULTS = st.lists(st.sampled_from(["none", "before", "after"]), max_size=8)
STEPS = st.lists(st.integers(0, 2) | st.just("flush"), min_size=1, max_size=25)


@examples(15)
@given(FAULTS, STEPS)
def test_records_of_a_partition_are_written_once_in_order(
    faults: list[str], steps: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as root:
        store = Store(monkeypatch)
        store.faults = faults
        make(root, 3)
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        told: list[tuple[int, SentRecord]] = []
        with producer(root, retry_backoff_ms=0) as sender:
            for number, step in enumerate(steps):
                if step == "flush":
                    assert sender.flush(LIMIT_S)
                else:
                    told.append((step, sender.send("t", b"%d" % number, partition=step)))
                    sent[step].append(b"%d" % number)
        assert [values_of(root, partition) for partition in sent] == list(sent.values())
        for partition in sent:
            offsets = [outcome(each) for number, each in told if number == partition]
            assert offsets == list(range(len(offsets)))


@examples(15)
@given(FAULTS, st.integers(0, 2), st.integers(1, 12))
def test_records_after_a_failure_keep_their_order(
    faults: list[str], retries: int, count: int
) -> None:
    """What was acknowledged is there at its offset; nothing is there twice or out of order."""
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as root:
        store = Store(monkeypatch)
        store.faults = faults
        make(root, 1)
        with producer(root, retry_backoff_ms=0, retries=retries) as sender:
            told = []
            for number in range(count):
                told.append(sender.send("t", b"%d" % number))
                assert sender.flush(LIMIT_S)
        found = values_of(root)
        assert found == sorted(set(found), key=lambda value: int(value or b""))
        for number, each in enumerate(told):
            offset = outcome(each)
            assert offset == "DeliveryFailed" or found[int(offset)] == b"%d" % number


def test_an_unknown_outcome_may_be_written_twice_without_idempotence(
    root: str, store: Store
) -> None:
    make(root, 1)
    store.faults = ["after"]
    with producer(root, retry_backoff_ms=0, enable_idempotence="false") as sender:
        sent = sender.send("t", b"a")
        assert outcome(sent) == 1
    assert values_of(root) == [b"a", b"a"]


def test_records_sent_during_a_commit_share_the_next_one(root: str, store: Store) -> None:
    make(root, 2)
    with producer(root) as sender:
        with store.holds():
            sender.send("t", b"0", partition=0)
            assert store.begun.wait(LIMIT_S)
            for number in range(1, 5):
                sender.send("t", b"%d" % number, partition=number % 2)
        assert sender.flush(LIMIT_S)
    assert store.attempts == [[1], [2, 2]]
    assert values_of(root, 0) == [b"0", b"2", b"4"]


def test_send_blocks_on_a_full_buffer_then_raises(root: str, store: Store) -> None:
    make(root, 1)
    with producer(root, buffer_memory=1_000, max_block_ms=0) as sender:
        with store.holds():
            first = sender.send("t", bytes(800))
            assert store.begun.wait(LIMIT_S)
            with pytest.raises(BufferExhausted, match=r"buffer.memory \(1000 bytes\)"):
                sender.send("t", bytes(800))
        assert outcome(first) == 0
        assert sender.flush(LIMIT_S)
        assert outcome(sender.send("t", bytes(800))) == 1


def test_blocked_send_continues_when_memory_is_freed(root: str, store: Store) -> None:
    make(root, 1)
    with producer(root, buffer_memory=1_000, max_block_ms=60_000) as sender:
        with store.holds():
            sender.send("t", bytes(900))
            assert store.begun.wait(LIMIT_S)
            told: list[SentRecord] = []
            waits = threading.Thread(target=lambda: told.append(sender.send("t", b"waited")))
            waits.start()
            wait_until("it waits", lambda: len(sender._memory.blocked) == 1)
        waits.join(LIMIT_S)
        assert outcome(told[0]) == 1


def test_records_past_the_delivery_timeout_fail_and_later_ones_are_written(
    root: str, store: Store, clocks: AheadClocks
) -> None:
    make(root, 1)
    with producer(root, delivery_timeout_ms=10_000, retry_backoff_ms=0) as sender:
        with store.holds():
            sender.send("t", b"0")
            assert store.begun.wait(LIMIT_S)
            late = sender.send("t", b"late")
            clocks.monotonic_ahead_s = 20
        error = late.exception(LIMIT_S)
        assert isinstance(error, DeliveryTimeout)
        assert "delivery.timeout.ms (10000 ms) is over" in str(error)
        assert outcome(sender.send("t", b"next")) == 1
    assert values_of(root) == [b"0", b"next"]


def test_failure_names_the_topic_and_the_attempts(root: str, store: Store) -> None:
    make(root, 1)
    store.faults = ["before"] * 3
    with producer(root, retries=2, retry_backoff_ms=0) as sender:
        error = sender.send("t", b"a").exception(LIMIT_S)
        assert isinstance(error, DeliveryFailed)
        assert "topic 't' in 3 attempts: [Errno 5] Input/output error" in str(error)


def test_each_callback_is_called_once(root: str, store: Store) -> None:
    make(root, 1)
    store.faults = ["before"]
    told: list[Any] = []

    def tell(where: RecordMetadata | None, error: BaseException | None) -> None:
        told.append(where.offset if where is not None else type(error).__name__)
        raise ValueError("a callback fails")

    with producer(root, retries=0) as sender:
        sender.send("t", b"a", on_delivery=tell)
        assert sender.flush(LIMIT_S)
        for value in (b"b", b"c"):
            sender.send("t", value, on_delivery=tell)
        assert sender.flush(LIMIT_S)
    assert told == ["DeliveryFailed", 0, 1]


def test_closed_producer_has_written_all_and_accepts_nothing(root: str, store: Store) -> None:
    make(root, 1)
    sender = producer(root, linger_ms=60_000)
    sent = [sender.send("t", b"%d" % number) for number in range(3)]
    sender.close()
    sender.close()
    assert [outcome(each) for each in sent] == [0, 1, 2]
    assert store.attempts == [[3]]
    assert sender._memory.used == 0
    for topic in ("t", "other"):
        with pytest.raises(ProducerClosed):
            sender.send(topic, b"a")


def test_close_with_timeout_0_fails_records_not_written(root: str, store: Store) -> None:
    make(root, 1)
    store.faults = ["before"] * 1_000
    sender = producer(root)
    sent = sender.send("t", b"a")
    assert store.begun.wait(LIMIT_S)
    sender.close(0)
    assert outcome(sent) == "ProducerClosed"


def test_recreated_topic_is_written_from_offset_0(root: str) -> None:
    make(root, 2)
    with producer(root) as sender:
        assert outcome(sender.send("t", b"a", partition=1)) == 0
        ((topic,), _) = log_topics(root)
        mark_deleted(root, "t", topic.at)
        gone = sender.send("t", b"b", partition=1)
        assert outcome(gone) == UnknownTopicOrPartitionError.__name__
        delete_topic(root, "t")
        create_log_topic(root, "t", 1)
        with pytest.MonkeyPatch.context() as at_once:
            at_once.setattr(record_topics, "MAX_METADATA_AGE_S", 0.0)
            assert outcome(sender.send("t", b"c", partition=0)) == 0
            error = sender.send("t", b"c", partition=0)
            assert outcome(error) == 1
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 1, only 0 to 0"):
                sender.send("t", b"c", partition=1)
    assert values_of(root) == [b"c", b"c"]


def test_unexpected_error_in_a_commit_fails_its_records(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, 1)
    works: Callable[..., Any] = LogAppender.append

    def breaks(*_: Any) -> Any:
        monkeypatch.setattr(LogAppender, "append", works)
        raise MemoryError("no memory")

    monkeypatch.setattr(LogAppender, "append", breaks)
    with producer(root, retries=0) as sender:
        assert outcome(sender.send("t", b"a")) == "DeliveryFailed"
        assert outcome(sender.send("t", b"b")) == 0


def test_producer_with_conflicting_log_state_gets_a_new_id(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter((7, 8))
    monkeypatch.setattr(ProducerIdManager, "next_id", lambda _: next(ids))
    topic = make(root, 1)
    with producer(root, linger_ms=20) as sender:
        assert outcome(sender.send("t", b"a")) == 0
        others: list[bytes | None] = [b"b", b"c"]
        LogAppender(topic, False).append([NewBatch(0, others, others, [0, 0], None, 7, 0, 1)])
        error = sender.send("t", b"d").exception(LIMIT_S)
        assert isinstance(error, DeliveryFailed)
        assert "sequence 1 came where 3 was to come" in str(error)
        assert outcome(sender.send("t", b"e")) == 3
    assert values_of(root) == [b"a", b"b", b"c", b"e"]
