"""A topic's own table: offsets without gaps whoever appends, and each batch written once."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta import identity, storage
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.data_file import DataFile
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.topics import (
    NewBatch,
    OffsetOutOfRange,
    PartitionSegments,
    Segment,
    Segments,
    TableReplaced,
    UnknownTopicOrPartition,
    create_log_topic,
    log_appender,
)
from group_coordinator.schemas.rows import TopicTable
from group_coordinator.schemas.tables import TOPIC_RECORDS
from tests.pipeline.delta.test_unknown_outcome import Once
from tests.pipeline.topics.logs import appender, batch, make, of_producer, offsets, values
from tests.pipeline.topics.tables import caught_up, opened
from tests.support.failing_reads import BROKEN, count_reads, failing_reads

BROKEN_DISK = OSError(errno.EIO, "Input/output error")
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def rows_of(table: str) -> list[dict[str, Any]]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def files_of(table: str) -> int:
    return len(list(Path(table).rglob("*.parquet")))


# --- what is written is what is read --------------------------------------------------------------


def test_a_record_comes_back_as_it_went_in(root: str) -> None:
    topic = make(root)
    given = batch(1, "a", "b")
    given.keys[1] = given.values[0] = None
    given.timestamps = [-1, 5]
    given.headers = [(("h", b"1"), ("h", None)), ()]
    assert offsets(appender(topic).append([given])) == [0]
    topics = opened(root)
    first, second = topics.read("t", 1, 0, 1_000, 10)
    assert (first.offset, first.timestamp_ms, first.key, first.value) == (0, -1, b"a", None)
    assert (second.offset, second.timestamp_ms, second.key, second.value) == (1, 5, None, b"b")
    assert first.headers == (("h", b"1"), ("h", None))
    assert second.headers == ()
    with pytest.raises(OffsetOutOfRange):
        topics.read("t", 1, 3, 1_000, 10)
    with pytest.raises(UnknownTopicOrPartition):
        topics.read("t", 3, 0, 1_000, 10)


def test_a_row_has_the_columns_of_sparks_kafka_source(root: str) -> None:
    topic = make(root)
    appender(topic).append([batch(2, "a"), batch(0, "b")])
    schema = [
        (field.name, str(field.type.type)) for field in DeltaTable(topic.table).schema().fields[:7]
    ]
    assert schema == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "integer"),
        ("offset", "long"),
        ("timestamp", "timestamp"),
        ("timestampType", "integer"),
    ]
    first, second = rows_of(topic.table)
    assert (first["topic"], first["partition"], first["offset"]) == ("t", 0, 0)
    assert (second["timestampType"], second["headers"]) == (0, None)
    assert second["timestamp"].timestamp() == 1


def test_batches_of_several_partitions_are_one_commit(root: str) -> None:
    topic = make(root)
    writer = appender(topic)
    batches = [batch(0, "a", "b"), batch(1, "c"), batch(0, "d")]
    assert offsets(writer.append(batches)) == [0, 0, 2]
    assert offsets(writer.append([batch(0, "e")])) == [3]
    assert DeltaTable(topic.table).version() == 2
    assert values(opened(root)) == [(0, "a"), (1, "b"), (2, "d"), (3, "e")]


def test_a_large_record_ends_a_read_that_has_found_others(root: str) -> None:
    """And is given alone to the next read, or nobody would get past it (KIP-74)."""
    writer = appender(make(root, 1))
    for value in ("small", "large" * 1_000, "after"):
        writer.append([batch(0, value)])
    topics = opened(root)
    assert [each.offset for each in topics.read("t", 0, 0, 100, 10)] == [0]
    assert [each.offset for each in topics.read("t", 0, 1, 100, 10)] == [1]
    assert [each.offset for each in topics.read("t", 0, 0, 20_000, 10)] == [0, 1, 2]


def test_headers_count_in_a_read(root: str) -> None:
    """Or records of headers alone are all read at once, into one answer."""
    writer = appender(make(root, 1))
    headers = [(), (("a", b"x" * 90), ("b", None)), (("c", b"y" * 95),), ()]
    none: list[bytes | None] = [None] * 4
    writer.append([NewBatch(0, none, none, [1_000] * 4, headers)])
    writer.append([NewBatch(0, none, none, [1_000] * 4)])
    topics = opened(root)

    def offsets_read(offset: int, most: int) -> list[int]:
        return [each.offset for each in topics.read("t", 0, offset, most, 10)]

    assert offsets_read(0, 95) == [0]
    assert offsets_read(0, 96) == [0, 1]
    assert offsets_read(1, 96 + 97) == [1]
    assert offsets_read(1, 96 + 98) == [1, 2, 3]
    assert offsets_read(1, 96 + 99) == [1, 2, 3, 4, 5, 6, 7]
    assert [each.headers for each in topics.read("t", 0, 0, 1_000, 4)] == headers


def test_an_offset_is_found_by_its_time(root: str) -> None:
    writer = appender(make(root, 1))
    writer.append([batch(0, "a", "b", at=500)])
    writer.append([batch(0, "late", at=900), batch(0, "early", at=100)])
    topics = opened(root)
    assert topics.offset_for_time("t", 0, 0) == (0, 500)
    assert topics.offset_for_time("t", 0, 501) == (1, 501)
    assert topics.offset_for_time("t", 0, 502) == (2, 900)
    assert topics.offset_for_time("t", 0, 901) is None
    assert topics.offset_of_max_timestamp("t", 0) == (2, 900)


# --- several writers ------------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_numbers_its_records_anew(root: str) -> None:
    topic = make(root)
    first, second = appender(topic), appender(topic)
    first.append([batch(0, "a")])
    # It has not seen the other's commit when it writes its files.
    assert second._segments.poll()
    first.append([batch(0, "b", "c")])
    overtaken(second)
    assert offsets(second.append([batch(0, "d"), batch(1, "e")])) == [3, 0]
    assert values(opened(root)) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert files_of(topic.table) == 4, "the file that was numbered wrongly is gone"


def overtaken(writer: Any) -> None:
    """Let a writer's next look at the log find nothing."""
    poll, looks = writer._segments.poll, iter([True])

    def late() -> bool:
        return False if next(looks, False) else poll()

    writer._segments.poll = late


def test_a_writer_that_was_overtaken_elsewhere_keeps_its_files(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    first, second = appender(topic), appender(topic)
    second._segments.poll()
    first.append([batch(0, "a")])
    overtaken(second)
    written: list[str] = []
    write = second._write_file
    monkeypatch.setattr(second, "_write_file", lambda *each: written.append("") or write(*each))
    assert offsets(second.append([batch(1, "b")])) == [0]
    assert len(written) == 1


def test_writers_at_once_leave_no_gap_and_no_offset_twice(root: str) -> None:
    topic = make(root)

    def write(name: str) -> None:
        writer = appender(topic)
        for number in range(10):
            writer.append([batch(number % 2, f"{name}{number}"), batch(2, f"{name}{number}")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    topics = opened(root)
    for partition, count in ((0, 15), (1, 15), (2, 30)):
        found = values(topics, partition)
        assert [offset for offset, _ in found] == list(range(count))
        assert len({value for _, value in found}) == count
    for name in "abc":
        mine = [int(value[1:]) for _, value in values(topics, 2) if value[0] == name]
        assert mine == sorted(mine)


# --- a store that fails ---------------------------------------------------------------------------


def break_link(monkeypatch: pytest.MonkeyPatch, error: BaseException, works: bool) -> None:
    monkeypatch.setattr(storage.os, "link", Once(os.link, error, works))


@pytest.mark.parametrize("works", [True, False], ids=["made", "not made"])
def test_a_commit_whose_outcome_is_not_known_is_made_once(
    root: str, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    topic = make(root)
    writer = appender(topic)
    break_link(monkeypatch, BROKEN_DISK, works)
    assert offsets(writer.append([batch(0, "a"), of_producer(0, "b")])) == [0, 1]
    assert offsets(writer.append([batch(0, "c"), of_producer(0, "b")])) == [2, 1]
    assert values(opened(root)) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_commit_that_could_not_be_read_after_it_was_made_is_found_in_the_log(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    writer = appender(topic)
    link, read_bytes = os.link, Path.read_bytes
    unreadable: set[Path] = set()

    def made(source: Path, target: Path) -> None:
        link(source, target)
        if not unreadable:
            unreadable.add(target)
            raise BROKEN_DISK

    def read(path: Path) -> bytes:
        if path in unreadable:
            raise BROKEN_DISK
        return read_bytes(path)

    monkeypatch.setattr(storage.os, "link", made)
    monkeypatch.setattr(storage.Path, "read_bytes", read)
    assert offsets(writer.append([batch(0, "a")])) == [0]
    assert unreadable
    assert values(opened(root)) == [(0, "a")]


def test_an_attempt_that_was_made_though_it_seemed_to_fail_is_not_made_again(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    writer = appender(topic)
    create = writer._writer._log.create

    def made(commit: Commit, version: int) -> None:
        monkeypatch.setattr(writer._writer._log, "create", create)
        create(commit, version)
        raise FileExistsError("it was sent again, and found itself")

    monkeypatch.setattr(writer._writer._log, "create", made)
    assert offsets(writer.append([batch(0, "a")])) == [0]
    assert values(opened(root)) == [(0, "a")]


def test_the_file_of_a_commit_that_may_still_be_made_stays(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may make it after it has said that it failed."""
    topic = make(root)
    writer = appender(topic)
    errors = iter([CommitStateUnknown("the store does not answer"), BROKEN_DISK])

    def fails(*_: object) -> None:
        raise next(errors)

    monkeypatch.setattr(writer._writer._log, "create", fails)
    with pytest.raises(OSError, match="Input/output error"):
        writer.append([batch(0, "a")])
    assert len(list(Path(topic.table).rglob("*.parquet"))) == 1


def test_a_change_that_could_not_be_taken_in_is_looked_at_again(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    appender(topic).append([batch(0, "a")])
    segments = Segments(topic.table)
    with monkeypatch.context() as broken:
        broken.setattr(Segments, "_segment", Once(lambda *_: None, BROKEN_DISK))
        with pytest.raises(OSError, match="Input/output error"):
            segments.poll()
    assert segments.poll()
    assert segments.partition(0).log_end == 1
    assert len(segments.partition(0).segments) == 1


def test_segments_that_overlap_are_read_together() -> None:
    """As OPTIMIZE writes them: it packs whichever are small."""
    partition = PartitionSegments()
    for base, end in ((0, 10), (5, 15), (15, 20)):
        partition.take(Segment(DataFile(str(base), 1, 0, 1), base, end, 0, 0))
    assert [each.base for each in partition.run_from(3)] == [0, 5]
    assert [each.base for each in partition.run_from(12)] == [5]
    assert [each.base for each in partition.run_from(15)] == [15]


def test_a_commit_that_stays_unknown_is_said_to_be(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    writer = appender(topic)

    def fails(*_: object) -> None:
        raise CommitStateUnknown("the store does not answer")

    with monkeypatch.context() as broken:
        broken.setattr("group_coordinator.pipeline.topics.log_appender._SETTLE_S", 0)
        broken.setattr(writer._writer._log, "create", fails)
        poll = Segments.poll
        looks = iter([False])

        def unreadable(self: Segments) -> bool:
            if next(looks, True):
                raise BROKEN_DISK
            return poll(self)

        broken.setattr(Segments, "poll", unreadable)
        with pytest.raises(CommitStateUnknown, match="records were appended to 't'"):
            writer.append([batch(0, "a")])
    assert files_of(topic.table) == 1, "the file stays: a commit may name it"
    assert offsets(writer.append([batch(0, "b")])) == [0]


def test_an_append_that_the_disk_refused_leaves_nothing(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    writer = appender(topic)
    break_link(monkeypatch, NO_SPACE, works=False)
    with pytest.raises(OSError, match="No space left"):
        writer.append([batch(0, "a")])
    assert files_of(topic.table) == 0
    assert offsets(writer.append([batch(0, "b")])) == [0]


@pytest.mark.parametrize("place", ["store"], indirect=True)
@pytest.mark.usefixtures("place")
def test_an_append_looks_once_and_does_not_read_its_own_commit(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store bills each look."""
    writer = appender(make(root))
    writer.append([batch(0, "a")])
    read, asked = ObjectStore.read, []

    def noting(store: ObjectStore, path: str) -> bytes | None:
        asked.append(path.rpartition("/")[2])
        return read(store, path)

    monkeypatch.setattr(ObjectStore, "read", noting)
    assert offsets(writer.append([of_producer(0, "b")])) == [1]
    assert asked == [f"{2:020}.json"]
    assert offsets(writer.append([of_producer(0, "b"), of_producer(1, "c")])) == [1, 2]


# --- idempotent producers -------------------------------------------------------------------------


def test_a_repeated_batch_is_written_once_also_through_another_gateway(root: str) -> None:
    topic = make(root)
    first = appender(topic)
    assert offsets(first.append([of_producer(0, "a", "b")])) == [0]
    again = [of_producer(0, "a", "b"), of_producer(2, "c"), of_producer(2, "c")]
    assert offsets(first.append(again)) == [0, 2, 2]
    assert offsets(appender(topic).append([of_producer(2, "c"), of_producer(3, "d")])) == [2, 3]
    assert offsets(first.append([of_producer(3, "d")])) == [3]
    assert [value for _, value in values(opened(root))] == ["a", "b", "c", "d"]


def test_a_producer_is_not_refused_for_a_commit_that_the_first_look_does_not_show(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system; the producer's batch before went through another gateway."""
    topic = make(root)
    first, second = appender(topic), appender(topic)
    assert offsets(second.append([of_producer(0, "a")])) == [0]
    assert offsets(first.append([of_producer(1, "b")])) == [1]
    poll, looks = Segments.poll, list[bool]()

    def stale_at_first(self: Segments) -> bool:
        looks.append(bool(looks) and poll(self))
        return looks[-1]

    monkeypatch.setattr(Segments, "poll", stale_at_first)
    assert offsets(second.append([of_producer(2, "c")])) == [2]
    assert looks[:2] == [False, True]


def test_sequences_follow_each_other_as_in_kafka(root: str) -> None:
    topic = make(root)
    writer = appender(topic)
    # Of a producer that nobody knows any sequence may come first.
    assert offsets(writer.append([of_producer(5, "a"), of_producer(8, "gap")])) == [
        0,
        "OutOfOrderSequence",
    ]
    assert offsets(writer.append([of_producer(6, "b", "c"), of_producer(6, "b")])) == [
        1,
        "OutOfOrderSequence",
    ]
    newer = [of_producer(1, "x", epoch=1), of_producer(0, "d", epoch=1), of_producer(8, "old")]
    assert offsets(writer.append(newer)) == ["OutOfOrderSequence", 3, "InvalidProducerEpoch"]
    assert offsets(writer.append([of_producer(0, "elsewhere", partition=1)])) == [0]


def failed_once(monkeypatch: pytest.MonkeyPatch, writer: Any, *batches: NewBatch) -> None:
    def fails(*_: object) -> None:
        raise BROKEN_DISK

    with monkeypatch.context() as broken:
        broken.setattr(writer._writer._log, "create", fails)
        with pytest.raises(OSError, match="Input/output error"):
            writer.append(batches)


def test_of_a_new_producer_nothing_is_written_before_what_failed(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first batch could never be written any more: its second would be the first."""
    writer = appender(make(root))
    failed_once(monkeypatch, writer, of_producer(0, "a"), of_producer(1, "b"), batch(0, "x"))
    later = [of_producer(1, "b"), of_producer(1, "elsewhere", partition=1), batch(0, "y")]
    assert offsets(writer.append(later)) == ["OutOfOrderSequence", 0, 0]
    assert offsets(writer.append([of_producer(2, "c")])) == ["OutOfOrderSequence"]
    again = [of_producer(number, str(number)) for number in range(3)]
    assert offsets(writer.append(again)) == [1, 2, 3]


def test_of_made_up_producers_that_are_too_many_the_oldest_are_forgotten(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a store failed, each producer id that a client had made up stayed in memory."""
    monkeypatch.setattr(log_appender, "_MOST_UNWRITTEN", 3)
    writer = appender(make(root, 1))

    def of(producer: int, sequence: int) -> NewBatch:
        return batch(0, "a", producer_id=producer, producer_epoch=0, first_sequence=sequence)

    for producer in range(5):
        failed_once(monkeypatch, writer, of(producer, 0), batch(0, "x"))
    assert len(writer._unwritten) == 3
    late = [of(4, 1), of(2, 1), of(1, 1)]
    assert offsets(writer.append(late)) == ["OutOfOrderSequence", "OutOfOrderSequence", 0]


def test_a_new_epoch_of_it_begins_anew(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = appender(make(root))
    failed_once(monkeypatch, writer, of_producer(3, "a"))
    assert offsets(writer.append([of_producer(0, "a", epoch=1)])) == [0]


def test_what_it_wrote_through_another_gateway_counts(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    writer = appender(topic)
    failed_once(monkeypatch, writer, of_producer(0, "a"))
    assert offsets(appender(topic).append([of_producer(0, "a"), of_producer(1, "b")])) == [0, 1]
    assert offsets(writer.append([of_producer(2, "c")])) == [2]
    # The log forgets it: another engine has written its files anew.
    DeltaTable(topic.table).optimize.compact()
    DeltaTable(topic.table).create_checkpoint()
    writer._segments = Segments(topic.table)
    assert offsets(writer.append([of_producer(9, "d")])) == [3]


def test_sequences_begin_anew_after_the_last_one(root: str) -> None:
    writer = appender(make(root))
    last = 2**31 - 1
    batches = [
        of_producer(last - 1, "a", "b", "c"),
        of_producer(1, "d"),
        of_producer(last - 1, *"abc"),
    ]
    assert offsets(writer.append(batches)) == [0, 3, 0]


def test_five_batches_may_come_twice(root: str) -> None:
    writer = appender(make(root))
    batches = [of_producer(number, str(number)) for number in range(6)]
    assert offsets(writer.append(batches)) == [0, 1, 2, 3, 4, 5]
    assert offsets(writer.append(batches)) == ["OutOfOrderSequence", 1, 2, 3, 4, 5]
    assert len(values(opened(writer_root(writer)))) == 6


def writer_root(writer: Any) -> str:
    return str(Path(writer._topic.table).parent.parent)


def test_what_producers_wrote_outlives_the_logs_clean_up(root: str) -> None:
    topic = make(root)
    writer = appender(topic)
    for number in range(3):
        writer.append([of_producer(number, str(number)), batch(1, "x")])
    DeltaTable(topic.table).create_checkpoint()
    for each in Path(topic.table, "_delta_log").glob("*.json"):
        each.unlink()
    assert offsets(appender(topic).append([of_producer(2, "2"), of_producer(3, "3")])) == [2, 3]
    assert [offset for offset, _ in values(opened(root))] == [0, 1, 2, 3]


def test_a_reader_whose_log_was_cleaned_up_reads_the_table_anew(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("group_coordinator.pipeline.delta.identity.GONE_CHECK_S", 0.0)
    topic = make(root)
    writer = appender(topic)
    topics = opened(root)
    for number in range(3):
        writer.append([batch(0, str(number))])
    DeltaTable(topic.table).create_checkpoint()
    for each in Path(topic.table, "_delta_log").glob("*.json"):
        each.unlink()
    assert [offset for offset, _ in values(caught_up(topics))] == [0, 1, 2]


# --- other engines --------------------------------------------------------------------------------


def test_a_table_that_was_optimized_is_read_by_the_same_offsets(root: str) -> None:
    topic = make(root)
    writer = appender(topic)
    for number in range(6):
        writer.append([batch(0, *(f"{number}-{n}" for n in range(number * 20 + 1)))])
    before = values(opened(root))
    topics = opened(root)
    DeltaTable(topic.table).optimize.compact(target_size=6_000)
    assert values(caught_up(topics)) == before
    assert values(opened(root)) == before
    assert offsets(writer.append([batch(0, "next")])) == [len(before)]


@pytest.mark.parametrize(
    ("field", "theirs"),
    [
        ('"stats":"', '"stats":"{\\"numRecords\\":'),
        ('"appId":"log-end/0"', '"appId":"log-end/of-others"'),
        ('"appId":"log-end/0"', f'"appId":"log-end/{"9" * 5_000}"'),
    ],
    ids=["statistics", "an identifier", "a long identifier"],
)
def test_what_another_engine_says_in_its_own_way_is_none_of_ours(
    root: str, field: str, theirs: str
) -> None:
    topic = make(root)
    appender(topic).append([batch(0, "a", "b")])
    path = max(Path(topic.table, "_delta_log").glob("*.json"))
    path.write_text(path.read_text().replace(field, theirs))
    topics = opened(root)
    assert topics.problems() == {}
    assert values(topics) == [(0, "a"), (1, "b")]
    rows = Catalog(root).query("FROM log_segments WHERE base_offset < end_offset").rows
    assert len(rows) == 1


def test_a_file_that_is_of_no_partition_ends_its_topic_alone(root: str) -> None:
    topic = make(root)
    create_log_topic(root, "other", 1, {})
    topics = opened(root)
    add = '{"add":{"path":"x","partitionValues":{"partition":"of others"},"stats":"{}"}}'
    newest = max(Path(topic.table, "_delta_log").glob("*.json"))
    newest.with_name(f"{int(newest.stem) + 1:020}.json").write_text(add)
    caught_up(topics)
    assert list(topics.problems()) == ["t"]
    assert "'of others' is not a partition number" in str(topics.problems()["t"])


def test_an_end_that_cannot_be_looked_up_is_no_end(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gateway has shown more: a lower end would be told, or an offset refused for good."""
    appended = appender(make(root, 1))
    appended.append([batch(0, "a")])
    count_reads(monkeypatch, BROKEN)
    logs = TopicLogs(root)
    appended.append([batch(0, "b", "c")])
    for ask in (lambda: logs.refresh("t"), lambda: logs.read("t", 0, 2, 100)):
        with failing_reads(root, 1, BROKEN), pytest.raises(Failure, match="cannot be read"):
            ask()
        assert logs.bounds("t", 0).end == 1
    assert [each.offset for each in logs.read("t", 0, 2, 100)] == [2]


# --- a table that was created again ---------------------------------------------------------------


def create_again(topic: TopicTable) -> None:
    shutil.rmtree(topic.table)
    partition_by = list(TOPIC_RECORDS.partition_by)
    DeltaTable.create(topic.table, TOPIC_RECORDS.schema, partition_by=partition_by)


@pytest.mark.parametrize("is_opened_later", [False, True])
def test_a_table_that_was_created_again_is_not_appended_to(
    root: str, is_opened_later: bool
) -> None:
    topic = make(root)
    writer = appender(topic)
    writer.append([batch(0, "a")])
    create_again(topic)
    if is_opened_later:
        writer = appender(topic)
    with pytest.raises(TableReplaced, match="Delete the topic and create it again"):
        writer.append([batch(0, "b")])
    assert (DeltaTable(topic.table).version(), files_of(topic.table)) == (0, 0)


@pytest.mark.parametrize("is_opened_later", [False, True])
def test_a_table_that_was_created_again_is_named_and_not_served(
    root: str, monkeypatch: pytest.MonkeyPatch, is_opened_later: bool
) -> None:
    # A reader that opens the table compares it at once.
    monkeypatch.setattr(identity, "CHECK_S", 1_000.0 if is_opened_later else 0.0)
    topic = make(root)
    appender(topic).append([batch(0, "a")])
    topics = opened(root)
    create_again(topic)
    topics = opened(root) if is_opened_later else caught_up(topics)
    assert "was replaced" in str(topics.problems()["t"])
    with pytest.raises(TableReplaced, match="Delete the topic and create it again"):
        topics.log_end("t", 0)


def test_the_end_of_a_topic_whose_table_is_missing_is_unknown(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gateway may have acknowledged records since the last poll."""
    monkeypatch.setattr(identity, "CHECK_S", 1_000.0)
    topic = make(root)
    writer = appender(topic)
    writer.append([batch(0, "a")])
    topics = opened(root)
    writer.append([batch(0, "b")])
    Path(topic.table).rename(tmp_path / "aside")
    with pytest.raises(Failure, match="cannot be found: restore it"):
        topics.refresh("t")
    (tmp_path / "aside").rename(topic.table)
    topics.refresh("t")
    assert topics.log_end("t", 0) == 2
