"""Members that poll the records of a Delta table, against the real machine in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline.client import (
    CannotFollow,
    ConsumerRecord,
    CoordinatorTimeoutError,
    Failure,
    GroupMember,
    OffsetAndTimestamp,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline.client import TopicPartition as Tp
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import (
    LogAppender,
    NewBatch,
    TableTopics,
    create_log_topic,
    create_table_topic,
)
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.tables import definition_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 30.0
BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
QUICK = {"heartbeat_interval_ms": 200, "retry_backoff_ms": 10, "auto_commit_interval_ms": 100}
PARTITIONS = 6
T = [Tp("t", number) for number in range(PARTITIONS)]


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    running = SmallCoordinator(root, BROKER)
    yield running
    running.stop()


@pytest.fixture
def table(root: str, coordinator: SmallCoordinator) -> str:
    """A table of 60 rows in three commits that is a topic; a row's partition is its number mod 6,
    and its time is 1,000 ms times its number.
    """
    uri = f"{root}/rows"
    for start in (0, 20, 40):
        append(uri, range(start, start + 20))
    define(root, uri)
    return uri


def append(uri: str, numbers: Any, text: str = "x") -> None:
    values = list(numbers)
    rows = pa.table(
        {
            "n": pa.array(values, pa.int64()),
            "p": pa.array([n % PARTITIONS for n in values], pa.int32()),
            "at": pa.array([n * 1_000 for n in values], pa.timestamp("ms", "UTC")),
            "text": [text] * len(values),
        }
    )
    write_deltalake(uri, rows, mode="append")


def define(root: str, uri: str) -> None:
    create_table_topic(root, "t", PARTITIONS, uri, partition="p", value="text", timestamp="at")


def _added_path(uri: str, version: int) -> str:
    """The path of the one file that a commit added."""
    lines = Path(uri, "_delta_log", f"{version:020}.json").read_text().splitlines()
    (added,) = [json.loads(line)["add"] for line in lines if "add" in json.loads(line)]
    return str(added["path"])


@pytest.fixture
def join(root: str, coordinator: SmallCoordinator) -> Iterator[Callable[..., GroupMember]]:
    """Makes members, whose records' values are whole rows; closes them in the end."""
    members: list[GroupMember] = []

    def make(group: str = "g", topics: Any = ("t",), **settings: Any) -> GroupMember:
        given = {"whole_rows": True, **QUICK, **settings}
        members.append(GroupMember(root, group, topics, **given))
        return members[-1]

    yield make
    for member in members:
        member.close(1_000)


def number_of(record: ConsumerRecord) -> int:
    return int(json.loads(record.value or b"")["n"])


def gather(member: GroupMember, count: int) -> list[ConsumerRecord]:
    """Poll until there are so many records."""
    found: list[ConsumerRecord] = []

    def poll() -> None:
        for one, records in member.poll(1_000).items():
            assert all((each.topic, each.partition) == one for each in records)
            found.extend(records)

    wait_until(
        lambda: f"{len(found)} records of {count}",
        lambda: len(found) >= count,
        WAIT_S,
        poll,
        every_s=0,
    )
    assert len(found) == count
    return found


def await_by_polls(member: GroupMember, holds: Callable[[], bool]) -> None:
    """Poll, which returns no record, until it holds."""

    def poll() -> None:
        assert member.poll(20) == {}

    wait_until("polls bring it about", holds, WAIT_S, poll, every_s=0)


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(map(number_of, records))


# --- records --------------------------------------------------------------------------------------


def test_a_member_is_given_every_row_in_order_and_then_the_new_ones(join: Any, table: str) -> None:
    member = join(max_poll_records=7)
    found = gather(member, 60)
    assert numbers(found) == list(range(60))
    assert member.poll() == {}
    for one in T:
        mine = [each for each in found if each.partition == one.partition]
        assert [each.offset for each in mine] == list(range(10))
        assert [number_of(each) for each in mine] == list(range(one.partition, 60, PARTITIONS))
    assert found[0].timestamp == 1_000 * number_of(found[0])
    append(table, range(60, 70))
    assert numbers(gather(member, 10)) == list(range(60, 70))
    assert {member.position(one) for one in T} == {11, 12}
    assert {member.current_lag(one) for one in T} == {0}


@pytest.mark.full
def test_a_poll_returns_max_poll_records_at_most_and_partitions_take_turns(
    join: Any, table: str
) -> None:
    member = join(max_poll_records=4)
    polls = [member.poll(20_000) for _ in range(PARTITIONS)]
    assert all(sum(map(len, found.values())) == 4 for found in polls)
    assert {one for found in polls for one in found} == set(T)


@pytest.mark.full
def test_the_next_fetch_is_under_way_while_the_program_works(join: Any, table: str) -> None:
    member = join(max_partition_fetch_bytes=1)
    (one,) = member.poll(20_000)[T[0]]
    assert one.offset == 0
    buffer = member._records._fetcher._buffer
    wait_until("the next fetch is completed", lambda: T[0] in buffer._completed, WAIT_S)
    assert [each.offset for each in member.poll()[T[0]]] == [1]


def test_what_was_handed_out_is_committed_when_the_member_polls_again_or_closes(
    join: Any, table: str
) -> None:
    member = join()
    gather(member, 60)
    member.close()
    append(table, [60])
    assert numbers(gather(join(), 1)) == [60]


@pytest.mark.full
@pytest.mark.parametrize("commits", [False, True])
def test_records_that_a_program_failed_on_are_committed_only_if_it_did_so_itself(
    root: str, join: Any, table: str, commits: bool
) -> None:
    def fail() -> None:
        with GroupMember(root, "g", ["t"], max_poll_records=10, **QUICK) as member:
            gather(member, 10)
            gather(member, 10)
            if commits:
                member.commit()
            raise LookupError("the program's own")

    with pytest.raises(LookupError):
        fail()
    gather(join(), 40 if commits else 50)


@pytest.mark.full
def test_values_are_the_topics_unless_whole_rows_are_asked_for(join: Any, table: str) -> None:
    assert {each.value for each in gather(join(whole_rows=False), 60)} == {b"x"}


@pytest.mark.full
def test_a_row_that_is_larger_than_a_fetch_comes_alone(join: Any, table: str) -> None:
    append(table, [60], text="y" * 100_000)
    append(table, [66])
    member = join(max_partition_fetch_bytes=1_000, fetch_max_bytes=2_000)
    found = gather(member, 62)
    assert numbers(found) == [*range(61), 66]
    assert [len(each.value or b"") > 100_000 for each in found].count(True) == 1


@pytest.mark.full
def test_small_fetches_wait_for_fetch_min_bytes_but_no_longer_than_fetch_max_wait_ms(
    join: Any, table: str
) -> None:
    patient = join(fetch_min_bytes=10_000, fetch_max_wait_ms=600_000)
    assert patient.poll(20) == {}
    fetcher = patient._records._fetcher
    await_by_polls(patient, lambda: len(fetcher._held) == len(T))
    append(table, [60], text="y" * 10_000)
    assert len(gather(patient, 61)) == 61
    began = time.monotonic()
    hasty = join("hasty", fetch_min_bytes=1 << 20, fetch_max_wait_ms=300)
    assert len(gather(hasty, 61)) == 61
    assert time.monotonic() - began >= 0.3


@pytest.mark.full
def test_a_topic_that_is_no_table_has_no_records(join: Any, root: str) -> None:
    create_topic(root, "plain", 2)
    member = join(topics=["plain"])
    plain = [Tp("plain", 0), Tp("plain", 1)]
    await_by_polls(member, lambda: [member.position(one) for one in member.assignment] == [0, 0])
    assert member.end_offsets(plain) == dict.fromkeys(plain, 0)
    assert member.offsets_for_times({plain[0]: 0}) == {plain[0]: None}


def test_a_topic_with_a_table_of_its_own_is_polled_as_any_other(join: Any, root: str) -> None:
    create_log_topic(root, "own", 2)
    topic = definition_of(root, "own")
    member = join(topics=["own"], whole_rows=False, max_partition_fetch_bytes=1)
    appender = LogAppender(topic, False)
    for first in (0, 3):
        values: list[bytes | None] = [f"{first + number}".encode() for number in range(3)]
        headers = [(("h", b"1"),)] * 3
        appender.append([NewBatch(1, [b"k"] * 3, values, [first] * 3, headers)])
    found = gather(member, 6)
    assert [(each.partition, each.offset) for each in found] == [(1, n) for n in range(6)]
    assert [each.value for each in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (found[5].key, found[5].timestamp, found[5].headers) == (b"k", 3, (("h", b"1"),))
    assert member.offsets_for_times({Tp("own", 1): 1}) == {Tp("own", 1): OffsetAndTimestamp(3, 3)}


# --- positions ------------------------------------------------------------------------------------


def test_seek_goes_anywhere_and_gives_nothing_of_the_old_place(join: Any, table: str) -> None:
    member = join(max_poll_records=1)
    gather(member, 2)
    for one in T:
        member.seek(one, 8)
    found = gather(member, 12)
    assert {each.offset for each in found} == {8, 9}
    member.seek(T[2], 9)
    assert [each.offset for each in gather(member, 1)] == [9]


@pytest.mark.full
def test_seek_to_beginning_and_to_end(join: Any, table: str) -> None:
    member = join()
    gather(member, 60)
    member.seek_to_beginning([T[1]])
    assert [each.offset for each in gather(member, 10)] == list(range(10))
    member.seek_to_beginning()
    gather(member, 60)
    member.seek_to_beginning()
    member.seek_to_end()
    await_by_polls(member, lambda: None not in [member.position(one) for one in T])
    append(table, range(60, 66))
    assert numbers(gather(member, 6)) == list(range(60, 66))


@pytest.mark.full
def test_paused_partitions_are_left_out_until_they_are_resumed(join: Any, table: str) -> None:
    member = join(max_poll_records=1)
    first = gather(member, 1)
    member.pause(T[:5])
    rest = gather(member, 10 if first[0].partition != 5 else 9)
    assert {each.partition for each in rest} == {5}
    assert member.poll() == {}
    member.resume(T[:5])
    assert len(gather(member, 60 - 1 - len(rest))) == 59 - len(rest)


@pytest.mark.full
def test_offsets_are_found_by_place_and_time_without_polling(join: Any, table: str) -> None:
    member = join()
    assert member.beginning_offsets(T[:2]) == dict.fromkeys(T[:2], 0)
    assert member.end_offsets(T[:2]) == dict.fromkeys(T[:2], 10)
    append(table, [60])
    assert member.end_offsets(T[:2]) == {T[0]: 11, T[1]: 10}, "rows up to now count"
    times = {T[0]: 0, T[1]: 7_000, T[2]: 7_000, T[3]: 10**9}
    assert member.offsets_for_times(times) == {
        T[0]: OffsetAndTimestamp(0, 0),
        T[1]: OffsetAndTimestamp(1, 7_000),
        T[2]: OffsetAndTimestamp(1, 8_000),
        T[3]: None,
    }
    for question in (member.beginning_offsets, member.end_offsets):
        with pytest.raises(UnknownTopicOrPartitionError):
            question([Tp("t", PARTITIONS)])
    with pytest.raises(UnknownTopicOrPartitionError):
        member.offsets_for_times({Tp("nowhere", 0): 0})


@pytest.mark.full
def test_latest_is_the_end_when_the_member_joins(join: Any, table: str) -> None:
    member = join(auto_offset_reset="latest")
    await_by_polls(member, lambda: {member.position(one) for one in member.assignment} == {10})
    append(table, [60])
    assert numbers(gather(member, 1)) == [60]


# --- tables that change ---------------------------------------------------------------------------


@pytest.mark.full
def test_optimize_and_vacuum_between_two_polls_lose_no_row(join: Any, table: str) -> None:
    member = join(max_poll_records=10)
    found = gather(member, 10)
    DeltaTable(table).optimize.compact()
    found += gather(member, 20)
    append(table, range(60, 70))
    found += gather(member, 40)
    assert numbers(found) == list(range(70))
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    append(table, range(70, 80))
    assert numbers(gather(member, 10)) == list(range(70, 80))


@pytest.mark.full
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_rows_that_vacuum_took_are_passed_over_as_auto_offset_reset_says(
    join: Any, table: str, root: str, reset: str
) -> None:
    member = join(auto_offset_reset="none")
    with pytest.raises(Exception, match="no offset is committed"):
        member.poll(20_000)
    member.commit(dict.fromkeys(T, 0))
    member.close()
    topics = TableTopics(root)
    topics.catch_up()
    DeltaTable(table).optimize.compact()
    append(table, range(60, 66))
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    late = join(auto_offset_reset=reset)
    if reset == "earliest":
        assert numbers(gather(late, 6)) == list(range(60, 66))
    elif reset == "latest":
        await_by_polls(late, lambda: {late.position(one) for one in late.assignment} == {11})
    else:
        with pytest.raises(OffsetOutOfRangeError, match=r"topic 't' has no offset 0 .* 'none'"):
            gather(late, 1)
        for one in T:
            late.seek(one, 10)
        assert numbers(gather(late, 6)) == list(range(60, 66))


def test_what_ends_a_topic_is_raised_when_all_rows_before_it_were_handed_out(
    join: Any, table: str
) -> None:
    DeltaTable(table).delete("n = 5")
    append(table, [60])
    member = join(max_poll_records=7)
    assert numbers(gather(member, 60)) == list(range(60))
    for _ in range(2):
        with pytest.raises(CannotFollow, match=r"topic 't': version 3 of .* removes or changes"):
            gather(member, 1)


@pytest.mark.full
def test_a_store_that_fails_for_a_while_costs_time_and_no_row(
    join: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = {name: getattr(TableTopics, name) for name in ("poll", "read")}
    failures = dict.fromkeys(sound, 3)

    def failing(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            failures[name] -= 1
            if failures[name] >= 0:
                raise OSError(f"{name}: the store is away")
            return sound[name](*arguments)

        return call

    member = join(retry_backoff_max_ms=20)
    for name in sound:
        monkeypatch.setattr(TableTopics, name, failing(name))
    assert numbers(gather(member, 60)) == list(range(60))
    failures["poll"] = 3
    assert member.end_offsets(T[:1]) == {T[0]: 10}
    failures["poll"] = 1 << 30
    with pytest.raises(CoordinatorTimeoutError, match="could not be read within 50 ms"):
        member.end_offsets(T[:1], timeout_ms=50)


@pytest.mark.full
def test_a_file_that_was_torn_is_named_after_the_rows_before_it_and_can_be_passed_over(
    join: Any, table: str, root: str
) -> None:
    topics = TableTopics(root)
    topics.catch_up()
    torn = Path(table, _added_path(table, 1))
    torn.write_bytes(torn.read_bytes()[:-100])
    member = join()
    assert numbers(gather(member, 20)) == list(range(20))
    with pytest.raises(Failure, match=f"{torn.name} is no Parquet file"):
        gather(member, 1)
    for one, found in member.offsets_for_times(dict.fromkeys(T, 40_000)).items():
        member.seek(one, found.offset)
    assert numbers(gather(member, 20)) == list(range(40, 60))


@pytest.mark.full
def test_a_defect_of_the_reader_is_told_to_the_program(
    join: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(TableTopics, "read", defect)
    member = join()
    with pytest.raises(ZeroDivisionError):
        gather(member, 1)
    with pytest.raises(ZeroDivisionError):
        member.end_offsets(T)


# --- a group --------------------------------------------------------------------------------------


class Reader:
    """A member in a thread of its own, and the rows that its program has worked on."""

    def __init__(self, root: str, strategy: str, name: str) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self._stop = threading.Event()
        self._killed = False
        self.member = GroupMember(
            root,
            "g",
            ["t"],
            session_timeout_ms=1_000,
            partition_assignment_strategy=strategy,
            whole_rows=True,
            client_id=name,
            **QUICK,
        )
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            for one, records in self.member.poll(50).items():
                # A program that is killed has not worked on what it was given last.
                if not self._killed:
                    self.rows += [(one.partition, e.offset, number_of(e)) for e in records]

    def kill(self) -> None:
        """End it as a crash does: it neither commits nor leaves, and heartbeats no more."""
        self._killed = True
        self.member._hub.remove(self.member._driver)
        self._stop.set()
        self._thread.join()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.member.close(1_000 if not self._killed else 0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "count"),
    [
        ("cooperative-sticky", 3_000),
        pytest.param("cooperative-sticky", 100_000, marks=pytest.mark.long),
        pytest.param("range", 100_000, marks=pytest.mark.long),
    ],
)
def test_three_share_a_growing_table_one_is_killed_one_added_and_nothing_is_missed(
    root: str, coordinator: SmallCoordinator, strategy: str, count: int
) -> None:
    uri = f"{root}/rows"
    append(uri, range(count // 2))
    define(root, uri)
    readers = [Reader(root, strategy, f"r{number}") for number in range(3)]

    def await_rows(wanted: int) -> None:
        wait_until(
            lambda: f"{wanted} rows: {[len(each.rows) for each in readers]}",
            lambda: len({row for each in readers for row in each.rows}) >= wanted,
            3 * WAIT_S,
        )

    try:
        await_rows(count // 8)
        readers[1].kill()
        append(uri, range(count // 2, count * 3 // 4))
        await_rows(count // 2)
        readers.append(Reader(root, strategy, "r3"))
        append(uri, range(count * 3 // 4, count))
        await_rows(count)
    finally:
        for reader in readers:
            reader.stop()
    rows = {row for each in readers for row in each.rows}
    assert sorted(number for _, _, number in rows) == list(range(count))
    for number in range(PARTITIONS):
        offsets = sorted(offset for partition, offset, _ in rows if partition == number)
        assert offsets == list(range(len(offsets)))
