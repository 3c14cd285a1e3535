"""What Spark's readers of a topic plan and read, as Spark calls them, but without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from group_coordinator import Consumer
from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.settings import HOUR_MS, UpkeepSettings
from group_coordinator.pipeline.spark import topic_ranges
from group_coordinator.pipeline.spark.topic_offsets import InvalidReadOption, RecordsLost
from group_coordinator.pipeline.spark.topic_ranges import TopicRange, open_log
from group_coordinator.pipeline.spark.topic_reader import (
    READ_SCHEMA,
    TopicBatchReader,
    TopicStreamReader,
    read_options,
)
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic, create_topic
from group_coordinator.pipeline.topics import (
    CannotFollow,
    LogAppender,
    TableTopics,
    UnknownTopicOrPartition,
)
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics
from group_coordinator.schemas.tables import TOPIC_INDEX
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define, opened

ALL = ReadAllAvailable()
NOW_MS = 1_000_000_000_000


@pytest.fixture(autouse=True)
def _fresh_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the logs that this process has opened, and do not wait between two attempts."""
    open_log.cache_clear()
    monkeypatch.setattr(topic_ranges, "RETRY_S", 0.0)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Return a table of ten rows."""
    table = str(tmp_path / "rows")
    append(table, range(10))
    return table


def batch_reader(root: str, **options: str) -> TopicBatchReader:
    given = {"root": root, "topic": "t", **options}
    return TopicBatchReader(read_options(given, READ_SCHEMA, is_stream=False))


def stream_reader(root: str, **options: str) -> TopicStreamReader:
    given = {"root": root, "topic": "t", "startingOffsets": "earliest", **options}
    return TopicStreamReader(read_options(given, READ_SCHEMA, is_stream=True))


def read_all(reader: Any, parts: Any) -> list[dict[str, Any]]:
    """Read ranges as executors do: with a reader that was pickled before it was used."""
    copy = pickle.loads(pickle.dumps(type(reader)(reader._options)))
    return [
        row
        for part in parts
        for rows in copy.read(pickle.loads(pickle.dumps(part)))
        for row in rows.to_pylist()
    ]


def read_batch(root: str, **options: str) -> list[dict[str, Any]]:
    reader = batch_reader(root, **options)
    return read_all(reader, reader.partitions())


def values_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"].decode() for row in rows]


class Query:
    """A streaming query: it calls a reader as Spark does, from a stored position on."""

    def __init__(self, root: str, at: dict[str, Any] | None = None, **options: str) -> None:
        self.reader = stream_reader(root, **options)
        self.at = self.reader.initialOffset() if at is None else at
        self.before = self.at

    def run(self, limit: Any = None) -> list[str]:
        """Run the next batch and return its values."""
        default = self.reader.getDefaultReadLimit()
        stored = json.loads(json.dumps(self.reader.latestOffset(self.at, limit or default)))
        self.before, self.at = self.at, stored
        return self.run_again()

    def run_again(self) -> list[str]:
        """Read the last batch again, as after a restart."""
        return values_of(read_all(self.reader, self.reader.partitions(self.before, self.at)))


def fill(root: str) -> LogAppender:
    """Make a topic of two partitions with five records."""
    writer = appender(make(root, 2))
    writer.append([batch(0, "a", "b", "c"), batch(1, "d", "e")])
    return writer


def consumed(root: str) -> list[tuple[Any, ...]]:
    """Read all records of the topic `t` with a consumer."""
    found = []
    with Consumer(root) as consumer:
        partitions = consumer.partitions_for("t")
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) != ends[each] for each in partitions):
            for records in consumer.poll(1_000).values():
                found += [
                    (
                        record.key,
                        record.value,
                        record.topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.headers,
                    )
                    for record in records
                ]
    return sorted(found, key=lambda record: record[3:5])


def as_consumed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [
        (
            row["key"],
            row["value"],
            row["topic"],
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1_000),
            row["timestampType"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    ]
    return sorted(found, key=lambda record: record[3:5])


# --- a batch --------------------------------------------------------------------------------------


def test_a_batch_has_the_records_that_a_consumer_gets(root: str) -> None:
    writer = fill(root)
    given = batch(1, "f", "g")
    given.headers = [(("page", b"/cart"), ("page", None)), ()]
    given.keys = [None, b"k"]
    given.values = [None, b""]
    writer.append([given])
    rows = read_batch(root)
    assert len(rows) == 7
    assert as_consumed(rows) == consumed(root)


@pytest.mark.parametrize("columns", [{"key": "id"}, {"key": "id", "value": "n"}])
def test_a_batch_of_a_users_table_has_the_records_that_a_consumer_gets(
    root: str, uri: str, columns: dict[str, str]
) -> None:
    define(root, uri, 3, **columns)
    append(uri, range(10, 20))
    rows = read_batch(root)
    assert len(rows) == 20
    assert as_consumed(rows) == consumed(root)


@pytest.mark.parametrize("owner", ["topic", "user"])
def test_the_batches_have_the_types_that_spark_expects(root: str, uri: str, owner: str) -> None:
    if owner == "topic":
        fill(root)
    else:
        define(root, uri)
    reader = batch_reader(root)
    expected = to_arrow_schema(READ_SCHEMA, timezone="UTC")
    for part in reader.partitions():
        for rows in reader.read(part):
            assert isinstance(rows, pa.RecordBatch)
            assert rows.schema.equals(expected)


def test_a_batch_reads_from_the_starting_to_the_ending_offsets(root: str) -> None:
    fill(root)
    starting = '{"t": {"0": 1, "1": -2}}'
    ending = '{"t": {"0": -1, "1": 1}}'
    assert values_of(read_batch(root, startingOffsets=starting, endingOffsets=ending)) == [
        *("b", "c"),
        "d",
    ]


def test_starting_offsets_after_the_ending_offsets_are_refused(root: str) -> None:
    fill(root)
    with pytest.raises(InvalidReadOption, match="has 3, which is after endingOffsets, 2"):
        read_batch(
            root,
            startingOffsets='{"t": {"0": 3, "1": -2}}',
            endingOffsets='{"t": {"0": 2, "1": -1}}',
        )


def test_a_large_partition_is_read_by_several_tasks(root: str) -> None:
    fill(root)
    reader = batch_reader(root, maxRecordsPerPartition="2")
    parts = reader.partitions()
    assert [(part.partition, part.start, part.end) for part in parts] == [
        (0, 0, 1),
        (0, 1, 3),
        (1, 0, 2),
    ]
    assert values_of(read_all(reader, parts)) == ["a", "b", "c", "d", "e"]


def test_a_range_is_read_in_several_arrow_batches(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root).append([batch(0, "f")])
    monkeypatch.setattr(topic_ranges, "_BATCH_ROWS", 2)
    reader = batch_reader(root)
    (first, _) = reader.partitions()
    assert [rows.num_rows for rows in reader.read(first)] == [2, 1, 1]


def test_gaps_between_offsets_are_skipped(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root)
    read_rows = TableTopics.read_rows

    def with_gap(
        topics: TableTopics, topic: str, partition: int, offset: int, size: int, most: int
    ) -> pa.Table:
        """Read a log in which offset 1 has no record."""
        rows = read_rows(topics, topic, partition, offset, size, most + 1)
        return rows.filter(pa.compute.not_equal(rows.column("offset"), 1)).slice(0, most)

    monkeypatch.setattr(TableTopics, "read_rows", with_gap)
    assert values_of(read_batch(root)) == ["a", "c", "d"]
    assert values_of(read_batch(root, endingOffsets='{"t": {"0": 2, "1": 0}}')) == ["a"]


def test_records_that_are_appended_after_the_plan_are_not_read(root: str) -> None:
    writer = fill(root)
    reader = batch_reader(root)
    parts = reader.partitions()
    writer.append([batch(0, "f")])
    assert len(read_all(reader, parts)) == 5


def test_an_empty_topic_has_no_rows(root: str) -> None:
    make(root)
    reader = batch_reader(root)
    assert reader.partitions() == []
    # Spark then makes this partition.
    assert list(reader.read(InputPartition(None))) == []


def test_a_missing_topic_is_an_error(root: str) -> None:
    create_topic(root, "other", 1)
    with pytest.raises(UnknownTopicOrPartition, match=f"topic 't' does not exist in {root}"):
        read_batch(root)


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="does not exist"):
        read_batch(str(tmp_path / "nothing"))


def test_a_topic_without_a_table_is_an_error(root: str) -> None:
    create_topic(root, "t", 2)
    with pytest.raises(Failure, match="has no table, so none of its records can be read"):
        read_batch(root)


def test_a_topic_that_cannot_be_read_is_an_error(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root)
    attempts = []

    def fails(_: TableTopics) -> None:
        attempts.append(1)
        raise OSError("the store is away")

    monkeypatch.setattr(TableTopics, "catch_up", fails)
    with pytest.raises(OSError, match="the store is away"):
        batch_reader(root).partitions()
    assert len(attempts) == 3


def test_a_read_that_fails_once_is_tried_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root)
    catch_up, failures = TableTopics.catch_up, [OSError("the store is away")]

    def fails_once(topics: TableTopics) -> None:
        if failures:
            raise failures.pop()
        catch_up(topics)

    monkeypatch.setattr(TableTopics, "catch_up", fails_once)
    assert len(read_batch(root)) == 5


def test_a_topic_whose_table_is_away_is_an_error(root: str, tmp_path: Path) -> None:
    topic = make(root, 1)
    appender(topic).append([batch(0, "a")])
    Path(topic.table).rename(tmp_path / "away")
    with pytest.raises(Exception, match=r"the log of .* cannot be found"):
        read_batch(root)


def test_other_columns_are_refused(root: str) -> None:
    with pytest.raises(InvalidReadOption, match="the columns of a topic are struct<key:binary"):
        read_options(
            {"root": root, "topic": "t"},
            READ_SCHEMA.fromJson({"type": "struct", "fields": []}),
            is_stream=False,
        )


# --- records that are gone ------------------------------------------------------------------------


def expire(root: str, old: int = 2) -> LogAppender:
    """Make a topic of one partition, with `old` records past the retention, each in its file."""
    topic = make(root, 1, retention_ms=str(HOUR_MS))
    writer = appender(topic)
    for number in range(old):
        writer.append([batch(0, f"old {number}", at=NOW_MS - 2 * HOUR_MS)])
    writer.append([batch(0, "new", at=NOW_MS)])
    return writer


def retain(root: str) -> None:
    retain_topics(root, UpkeepSettings(), NOW_MS, lambda _: None)


def test_records_that_retention_deleted_are_an_error(root: str) -> None:
    expire(root)
    retain(root)
    with pytest.raises(RecordsLost, match="no offset 1 in partition 0, only 2 to 3: the query"):
        read_batch(root, startingOffsets='{"t": {"0": 1}}')
    assert values_of(read_batch(root)) == ["new"]


def test_without_fail_on_data_loss_a_read_goes_on_at_the_log_start(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    expire(root)
    retain(root)
    options = {"startingOffsets": '{"t": {"0": 1}}', "failOnDataLoss": "false"}
    assert values_of(read_batch(root, **options)) == ["new"]
    assert caplog.text.count("the query needs the records from 1 to 2") == 1


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_deleted_after_the_plan_are_noticed(root: str, fails: bool) -> None:
    expire(root)
    reader = batch_reader(root, failOnDataLoss=str(fails).lower())
    parts = reader.partitions()
    retain(root)
    if fails:
        with pytest.raises(RecordsLost, match="the query needs the records from 0 to 2"):
            read_all(reader, parts)
    else:
        assert values_of(read_all(reader, parts)) == ["new"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_range_that_was_deleted_as_a_whole_is_noticed(root: str, fails: bool) -> None:
    expire(root)
    reader = batch_reader(root, endingOffsets='{"t": {"0": 2}}', failOnDataLoss=str(fails).lower())
    parts = reader.partitions()
    retain(root)
    if fails:
        with pytest.raises(RecordsLost):
            read_all(reader, parts)
    else:
        assert read_all(reader, parts) == []


def test_earliest_is_after_the_rows_that_vacuum_deleted(root: str, uri: str) -> None:
    """The log start is too low until a deleted file is read."""
    define(root, uri, 2)
    append(uri, range(10, 20))
    opened(root)
    DeltaTable(uri).optimize.compact()
    append(uri, range(20, 30))
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert sorted(values_of(read_batch(root)))[0] == '{"id":"id-20","n":20}'
    assert len(read_batch(root)) == 10
    assert len(Query(root).run()) == 10


def test_a_log_that_became_shorter_is_an_error(root: str) -> None:
    fill(root)
    reader = batch_reader(root)
    first, _ = reader.partitions()
    longer = TopicRange(first.topic_id, 0, 0, 5)
    with pytest.raises(RecordsLost, match="partition 0 of topic 't' ends at offset 3"):
        read_all(reader, [longer])
    beyond = TopicRange(first.topic_id, 0, 4, 5)
    with pytest.raises(RecordsLost, match="no offset 4 in partition 0, only 0 to 3"):
        read_all(reader, [beyond])
    lenient = batch_reader(root, failOnDataLoss="false")
    assert values_of(read_all(lenient, [longer, beyond])) == ["a", "b", "c"]


def test_a_topic_ends_before_a_change_that_it_cannot_follow(root: str, uri: str) -> None:
    """The records before the change are read, and then the query fails."""
    define(root, uri, 1)
    query = Query(root)
    append(uri, range(10, 12))
    DeltaTable(uri).delete("n = 3")
    assert len(query.run()) == 12
    with pytest.raises(CannotFollow, match="removes or changes rows"):
        query.run()
    with pytest.raises(CannotFollow, match="removes or changes rows"):
        read_batch(root)
    with pytest.raises(CannotFollow, match="removes or changes rows"):
        Query(root)


def test_executors_do_not_index(root: str, uri: str) -> None:
    define(root, uri)
    reader = batch_reader(root)
    parts = reader.partitions()
    append(uri, range(10, 20))
    indexed = DeltaTable(table_uri(root, TOPIC_INDEX)).version()
    assert len(read_all(reader, parts)) == 10
    assert DeltaTable(table_uri(root, TOPIC_INDEX)).version() == indexed
    assert len(read_batch(root)) == 20


# --- a stream -------------------------------------------------------------------------------------


def test_a_stream_reads_each_record_once_and_a_batch_again(root: str) -> None:
    writer = fill(root)
    query = Query(root)
    assert query.run() == ["a", "b", "c", "d", "e"]
    writer.append([batch(1, "f")])
    assert query.run() == ["f"]
    writer.append([batch(0, "g")])
    assert query.run_again() == ["f"]
    assert Query(root, query.at).run() == ["g"]
    at = query.at
    assert query.run() == ["g"]
    assert query.run() == []
    assert query.before == query.at != at


def test_a_stream_begins_at_the_latest_offset_by_default(root: str) -> None:
    writer = fill(root)
    query = Query(root, startingOffsets="latest")
    writer.append([batch(0, "f")])
    assert query.run() == ["f"]


def test_an_empty_topic_begins_no_batch(root: str) -> None:
    topic = make(root, 2)
    query = Query(root)
    assert query.run() == []
    assert query.at == query.before
    assert query.at == {"t": {"0": 0, "1": 0, "topicId": topic.topic_id}}


def test_a_batch_has_about_the_maximum_of_offsets(root: str) -> None:
    writer = appender(make(root, 2))
    writer.append([batch(0, *"abcdefgh"), batch(1, *"ijkl")])
    query = Query(root, maxOffsetsPerTrigger="6")
    assert query.run() == [*"abcd", *"ij"]
    assert query.run(ALL) == [*"efgh", *"kl"]
    assert stream_reader(root).getDefaultReadLimit() == ALL
    assert stream_reader(root, maxOffsetsPerTrigger="6").getDefaultReadLimit() == ReadMaxRows(6)


def test_available_now_ends_at_the_log_ends_of_its_start(root: str) -> None:
    writer = fill(root)
    query = Query(root, maxOffsetsPerTrigger="4")
    query.reader.prepareForTriggerAvailableNow()
    writer.append([batch(0, "later")])
    found = [query.run(), query.run(), query.run()]
    assert sorted(value for values in found for value in values) == ["a", "b", "c", "d", "e"]
    assert found[-1] == []


def test_the_progress_has_the_log_ends(root: str) -> None:
    topic = fill(root)._topic
    query = Query(root, maxOffsetsPerTrigger="2")
    assert query.reader.reportLatestOffset() is None
    query.run()
    ends = {"t": {"0": 3, "1": 2, "topicId": topic.topic_id}}
    assert query.reader.reportLatestOffset() == ends


def test_a_partition_that_is_added_is_read_from_its_beginning(root: str) -> None:
    writer = fill(root)
    query = Query(root, startingOffsets="latest")
    alter_topic(root, "t", 3)
    writer.append([batch(2, "f"), batch(0, "g")])
    assert query.run() == ["g", "f"]
    assert query.run_again() == ["g", "f"]


def create_again(root: str) -> LogAppender:
    delete_topic(root, "t")
    writer = appender(make(root, 1))
    writer.append([batch(0, *"vwxyz")])
    return writer


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_topic_that_was_created_again_fails_the_query(root: str, is_restarted: bool) -> None:
    fill(root)
    query = Query(root)
    query.run()
    create_again(root)
    if is_restarted:
        query = Query(root, query.at)
    with pytest.raises(RecordsLost, match="topic 't' was deleted and created again"):
        query.run()


def test_without_fail_on_data_loss_the_new_topic_is_read_from_its_beginning(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(root)
    query = Query(root, failOnDataLoss="false")
    query.run()
    create_again(root)
    assert query.run() == [*"vwxyz"]
    assert query.run_again() == [*"vwxyz"]
    assert query.run() == []
    assert caplog.text.count("deleted and created again") == 1


@pytest.mark.parametrize("fails", [True, False])
def test_ranges_of_a_topic_that_was_created_again_are_not_read_from_the_new_one(
    root: str, fails: bool
) -> None:
    fill(root)
    query = Query(root, failOnDataLoss=str(fails).lower())
    query.run()
    create_again(root)
    if fails:
        with pytest.raises(RecordsLost, match="deleted and created again"):
            query.run_again()
    else:
        assert query.run_again() == []


def test_a_topic_that_was_deleted_fails_the_query(root: str) -> None:
    fill(root)
    query = Query(root, failOnDataLoss="false")
    query.run()
    delete_topic(root, "t")
    with pytest.raises(UnknownTopicOrPartition, match="topic 't' does not exist"):
        query.run()


@pytest.mark.parametrize("fails", [True, False])
def test_a_position_after_the_log_end_fails_the_query(root: str, fails: bool) -> None:
    """As after the restore of an older copy of the root."""
    writer = fill(root)
    at = Query(root).at
    at["t"] |= {"0": 3, "1": 7}
    query = Query(root, at, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(RecordsLost, match="partition 1 of topic 't' ends at offset 2, and the"):
            query.run()
    else:
        assert query.run() == []
        writer.append([batch(1, "f")])
        assert query.run() == ["f"]


def test_the_checkpoint_of_another_topic_is_refused(root: str) -> None:
    fill(root)
    query = Query(root, {"other": {"0": 0, "1": 0}})
    with pytest.raises(InvalidReadOption, match="checkpoint is that of topic 'other'"):
        query.run()
    with pytest.raises(InvalidReadOption, match="checkpoint is that of topic 'other'"):
        query.reader.partitions(query.at, query.at)


# --- progress of a group --------------------------------------------------------------------------


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


def committed(root: str) -> list[Any]:
    asked = 'SELECT group_id, "partition", committed_offset FROM committed_offsets ORDER BY ALL'
    return Catalog(root).query(asked).rows


@pytest.mark.usefixtures("coordinator")
def test_only_processed_records_are_committed(root: str) -> None:
    writer = fill(root)
    query = Query(root, groupIdForProgress="job")
    query.run()
    assert query.reader._commits is not None
    assert query.reader._commits.flush(30)
    assert committed(root) == [("job", 0, 0), ("job", 1, 0)]
    # The next batch begins when this one is processed.
    writer.append([batch(1, "f")])
    query.run()
    query.reader.stop()
    assert committed(root) == [("job", 0, 3), ("job", 1, 2)]


@pytest.mark.usefixtures("coordinator")
def test_the_end_of_an_available_now_query_is_committed(root: str) -> None:
    fill(root)
    query = Query(root, groupIdForProgress="job")
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.run()) == 5
    # Spark asks once more, and ends the process of the reader without a call of `stop`.
    assert query.run() == []
    assert committed(root) == [("job", 0, 3), ("job", 1, 2)]
    query.reader.stop()


def test_without_a_group_nothing_is_committed(root: str) -> None:
    fill(root)
    query = Query(root)
    query.run()
    assert query.reader._commits is None
    query.reader.stop()
