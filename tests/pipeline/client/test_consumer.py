"""A program's consumer that chooses its partitions itself, with a group and without one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from group_coordinator.pipeline.client import (
    CommitFailedError,
    ConfigError,
    Consumer,
    ConsumerRecord,
    GroupMember,
    InvalidGroupIdError,
    MemberClosed,
    NoCatalogue,
    NoOffsetForPartitionError,
    NoTables,
    OffsetAndMetadata,
    SubscriptionError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline.client import TopicPartition as Tp
from group_coordinator.pipeline.topics import (
    LogAppender,
    NewBatch,
    create_log_topic,
    create_table_topic,
)
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.tables import definition_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 30.0
BROKER = {"group.initial.rebalance.delay.ms": 0}
T = [Tp("t", 0), Tp("t", 1)]
EVERYTHING = [b"t0-0", b"t0-1", b"t0-2", b"t1-0", b"t1-1", b"t1-2"]


@pytest.fixture
def lone_root(tmp_path: Path) -> str:
    """A root with a topic `t` of two partitions, three records each, where nobody coordinates."""
    root = str(tmp_path)
    fill(root)
    return root


def fill(root: str) -> None:
    create_log_topic(root, "t", 2)
    definition = definition_of(root)
    values: list[list[bytes | None]] = [[b"t%d-%d" % (p, n) for n in range(3)] for p in range(2)]
    batches = [NewBatch(p, [None] * 3, values[p], [0] * 3, [()] * 3) for p in range(2)]
    LogAppender(definition, False).append(batches)


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    fill(root)
    running = SmallCoordinator(root, BROKER)
    yield running
    running.stop()


def files(root: str) -> dict[str, int]:
    """Each file below a root, with when it was last written, ns."""
    found = (each for each in Path(root).rglob("*") if each.is_file())
    return {str(each): each.stat().st_mtime_ns for each in found}


def gather(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are so many records."""
    found: list[ConsumerRecord] = []
    wait_until(
        lambda: f"{len(found)} records of {count}",
        lambda: len(found) >= count,
        WAIT_S,
        lambda: found.extend(each for some in consumer.poll(1_000).values() for each in some),
        every_s=0,
    )
    assert len(found) == count
    return found


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return sorted((each.value for each in records), key=lambda value: value or b"")


# --- without a group ------------------------------------------------------------------------------


def test_without_a_group_nothing_is_asked_and_nothing_is_written(lone_root: str) -> None:
    before = files(lone_root)
    threads = {each.name for each in threading.enumerate()}
    with Consumer(lone_root) as consumer:
        consumer.assign(consumer.partitions_for("t"))
        assert values(gather(consumer, 6)) == EVERYTHING
        assert consumer.beginning_offsets(T) == dict.fromkeys(T, 0)
        assert consumer.end_offsets(T) == dict.fromkeys(T, 3)
        assert {each.name for each in threading.enumerate()} - threads == {"fetcher"}
    assert files(lone_root) == before
    assert not Path(lone_root, "requests").exists()


@pytest.mark.full
def test_a_table_of_the_users_own_is_read_where_no_coordinator_has_run(tmp_path: Path) -> None:
    root, uri = str(tmp_path / "root"), str(tmp_path / "rows")
    numbers = list(range(6))
    write_deltalake(uri, pa.table({"n": numbers, "p": pa.array([n % 2 for n in numbers], "int32")}))
    create_table_topic(root, "t", 2, uri, partition="p")
    with Consumer(root) as consumer:
        consumer.assign(T)
        found = gather(consumer, 6)
    assert sorted((each.partition, each.offset) for each in found) == [
        (p, n) for p in (0, 1) for n in range(3)
    ]
    assert not {"requests", "responses"} & {each.name for each in Path(root).iterdir()}


@pytest.mark.full
def test_without_a_group_seek_says_where_and_close_says_nothing(lone_root: str) -> None:
    with Consumer(lone_root, auto_offset_reset="none") as consumer:
        consumer.assign([("t", 1)])
        with pytest.raises(NoOffsetForPartitionError, match="t-1"):
            consumer.poll(1_000)
        consumer.seek(T[1], 2)
        assert values(gather(consumer, 1)) == [b"t1-2"]
        assert consumer.position(T[1]) == 3
    with Consumer(lone_root, auto_offset_reset="latest") as consumer:
        consumer.assign(T)
        positions = lambda: [consumer.position(one) for one in T]  # noqa: E731
        wait_until(positions, lambda: positions() == [3, 3], WAIT_S, lambda: consumer.poll(20))


@pytest.mark.full
@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.subscribe(["t"]),
        lambda consumer: consumer.commit({T[0]: 1}),
        lambda consumer: consumer.commit_async(),
        lambda consumer: consumer.committed(T),
    ],
)
def test_what_needs_a_group_says_so(lone_root: str, call: Callable[[Consumer], Any]) -> None:
    with Consumer(lone_root) as consumer, pytest.raises(InvalidGroupIdError, match=r"group\.id"):
        call(consumer)


@pytest.mark.full
def test_without_a_group_nothing_can_be_committed_automatically(lone_root: str) -> None:
    assert Consumer(lone_root).settings.enable_auto_commit is False
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit cannot be set to true"):
        Consumer(lone_root, enable_auto_commit=True)


@pytest.mark.full
def test_partitions_that_do_not_exist(lone_root: str, tmp_path: Path) -> None:
    with Consumer(lone_root) as consumer:
        for wrong, words in (
            (Tp("t", 2), "no partition t-2: 't' has 2"),
            (Tp("u", 0), "topic 'u'"),
        ):
            with pytest.raises(UnknownTopicOrPartitionError, match=words):
                consumer.assign([T[0], wrong])
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nowhere'"):
            consumer.partitions_for("nowhere")
        assert consumer.assignment == ()
    with Consumer(str(tmp_path / "empty")) as consumer, pytest.raises(NoCatalogue):
        consumer.assign(T)


def test_to_poll_nothing_is_an_error(lone_root: str) -> None:
    with Consumer(lone_root) as consumer:
        for _ in range(2):
            match = "not subscribed to any topics or assigned any partitions"
            with pytest.raises(SubscriptionError, match=match):
                consumer.poll()
            consumer.assign(T)
            consumer.assign([])


def test_a_closed_consumer_says_so(lone_root: str) -> None:
    consumer = Consumer(lone_root)
    consumer.close()
    consumer.close()
    with pytest.raises(MemberClosed, match="this consumer is closed"):
        consumer.assign(T)


@pytest.mark.full
def test_members_and_consumers_without_a_group_of_one_process(
    root: str, coordinator: SmallCoordinator
) -> None:
    with Consumer(root) as consumer:
        consumer.assign(T)
        with GroupMember(root, "g", ["t"]) as member:
            assert values(gather(member, 6)) == EVERYTHING
            assert values(gather(consumer, 6)) == EVERYTHING
        assert consumer.poll() == {}


@pytest.mark.full
def test_a_group_where_no_coordinator_has_run(lone_root: str) -> None:
    with Consumer(lone_root) as consumer:
        for _ in range(2):
            with pytest.raises(NoTables):
                Consumer(lone_root, "g")
        consumer.assign(T)
        assert values(gather(consumer, 6)) == EVERYTHING


# --- with a group ---------------------------------------------------------------------------------


def test_with_a_group_assigned_partitions_begin_where_the_group_committed(
    root: str, coordinator: SmallCoordinator
) -> None:
    told: list[Any] = []
    with Consumer(root, "g", on_assigned=told.append, on_revoked=told.append) as consumer:
        consumer.commit({T[0]: 2})
        consumer.assign(T)
        assert values(gather(consumer, 4)) == [b"t0-2", b"t1-0", b"t1-1", b"t1-2"]
        assert (consumer.generation, consumer.member_id, told) == (-1, "", [])
    with Consumer(root, "g") as successor:
        three = OffsetAndMetadata(3, "", -1)
        assert successor.committed(T) == dict.fromkeys(T, three), "close commits"
    assert told == []


@pytest.mark.full
def test_assign_replaces_all_and_says_that_the_last_records_are_done(
    root: str, coordinator: SmallCoordinator
) -> None:
    with Consumer(root, "g", max_poll_records=1) as consumer:
        consumer.assign([T[0]])
        gather(consumer, 2)
        consumer.assign([T[1]])
        assert consumer.assignment == (T[1],)
        assert values(gather(consumer, 3)) == [b"t1-0", b"t1-1", b"t1-2"]
        consumer.commit()
        assert consumer.committed([T[0]]) == {T[0]: OffsetAndMetadata(2, "", -1)}


@pytest.mark.full
def test_a_group_that_has_members_takes_no_commit_of_one_who_is_none(
    root: str, coordinator: SmallCoordinator
) -> None:
    with GroupMember(root, "g", ["t"]) as member, Consumer(root, "g") as consumer:
        gather(member, 6)
        with pytest.raises(CommitFailedError, match="group 'g' has members"):
            consumer.commit({T[0]: 1})
        assert member.poll() == {}


def test_subscribe_and_assign_exclude_each_other(root: str, coordinator: SmallCoordinator) -> None:
    with Consumer(root, "g") as consumer:
        consumer.subscribe(["t"])
        assert consumer.subscription == frozenset({"t"})
        assert values(gather(consumer, 6)) == EVERYTHING
        match = "^Subscription to topics, partitions and pattern are mutually exclusive"
        with pytest.raises(SubscriptionError, match=match):
            consumer.assign(T)
        consumer.assign([])
        assert (consumer.subscription, consumer.assignment, consumer.member_id) == (set(), (), "")
        consumer.assign(T)
        with pytest.raises(SubscriptionError, match=match):
            consumer.subscribe(["t"])


def test_positions_that_are_known_need_no_coordinator(
    root: str, coordinator: SmallCoordinator
) -> None:
    coordinator.pause()
    with Consumer(root, "g", default_api_timeout_ms=50, auto_commit_interval_ms=1) as consumer:
        consumer.assign(T)
        for one in T:
            consumer.seek(one, 0)
        gather(consumer, 6)
        silent_since = lambda: consumer._driver._silent_since  # noqa: E731
        wait_until("a commit waits", silent_since, WAIT_S, lambda: consumer.poll(5))
        assert consumer.poll(200) == {}
        consumer.close(0)
