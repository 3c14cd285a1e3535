"""A bootstrap by DuckDB says what Spark's would: the same groups, the same waiting requests."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator.group.control import decode_control, readable_records
from coordinator.group.log import replay
from pipeline.delta.open import open_appender
from pipeline.node.bootstrap import (
    bootstrap_without_spark,
    load_events,
    prepare_bootstrap,
    read,
    waiting_requests,
)
from pipeline.node.load_events import add_files, write_load_events
from pipeline.node.waiting_requests import write_waiting_requests
from pipeline.settings import CoordinatorSettings
from pipeline.stream.event_source import read_events
from pipeline.stream.sink import Sink
from pipeline.stream.source import FIRST_KEY, KEY_WIDTH
from pipeline.tables.request_log import RequestLog
from pipeline.tables.store import open_table, table_uri
from schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
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
    RejectedRequest,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
    decode_request,
)
from schemas.records import GroupMetadataValue, MemberMetadata, OffsetCommitValue, Record
from schemas.tables import (
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    REQUESTS,
    to_arrow,
    to_requests,
)
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.rows import heartbeat, output

AWKWARD = 'quotes " and \\ and\nnew\tlines \x00\x1f\x7f, Grüße 🎉 \u2028'


def stored(group: str, *members: MemberMetadata, generation: int = 1) -> Record:
    value = GroupMetadataValue("consumer", generation, "range", None, -1, members)
    return Record(len(group) % 3, "group_metadata", group, 7, group_metadata=value)


def member(name: str, instance: str | None = None, blob: bytes = b"") -> MemberMetadata:
    return MemberMetadata(name, instance, AWKWARD, "/h", 60_000, 10_000, blob, blob[::-1])


def awkward_commit(group: str, topic: str, offset: int) -> Record:
    value = OffsetCommitValue(offset, 3, AWKWARD, 5, 99)
    at = 1_700_000_000_123
    return Record(len(group) % 3, "offset_commit", group, at, None, topic, 1, offset_commit=value)


def write_rich_log(root: str) -> Log:
    """Everything that a log can hold: see the ids."""
    log = Log(root)
    log.append(stored("later wins"), commit("later wins", 1, 5), commit("all gone", 1, 5))
    log.append(awkward_commit(AWKWARD, AWKWARD, 2**63 - 1), stored("members, then none"))
    log.roll()
    log.append(commit("later wins", 2, 6), commit("all gone", None, 6))
    blob = bytes(range(256))
    log.append(stored("binary", member("m-1", "i", blob), member("m-2", None, b"")))
    log.append(commit("one gone", 1, 7, ("t", 0)), commit("one gone", 1, 7, ("u", 0)))
    log.roll()
    log.append(commit("one gone", None, 8, ("u", 0)), stored("later wins", generation=2))
    log.append_rows(
        [
            Record(0, "offset_commit", None, 5, 900, "t", 0, OffsetCommitValue(1, 1, "", 1)),
            Record(0, "offset_commit", "no place", 5, None, "t", 0, OffsetCommitValue(1, 1, "", 1)),
            Record(0, "share_group", "of others", 5, 901),
        ]
    )
    return log


def events_of(folder: Path, root: str, partitions: Collection[int] | None = None, **how):
    files = write_load_events(root, folder, partitions, **how)
    tables = [pq.read_table(folder / file.path) for file in files]
    return {row["group_id"]: row["event"] for table in tables for row in table.to_pylist()}


def place(record: Record) -> int:
    assert record.log_offset is not None
    return record.log_offset


def state_of(group_id: str, event: str):
    """What a coordinator makes of a group's event; the record order is anybody's."""
    assert event.startswith(FIRST_KEY)
    records, problems = readable_records(decode_control(event[KEY_WIDTH:]).records)
    assert not problems
    ordered = sorted(records, key=place)
    return ordered, msgspec.json.encode(replay(group_id, ordered))


# --- what loads a group -------------------------------------------------------------------------


@pytest.mark.spark
def test_every_group_is_loaded_as_spark_would_load_it(spark, root, tmp_path):
    write_rich_log(root)
    ours = events_of(tmp_path / "bootstrap", root)
    sparks = {row["group_id"]: row["event"] for row in load_events(read(spark, root)).collect()}
    assert {g: state_of(g, e) for g, e in ours.items()} == {
        g: state_of(g, e) for g, e in sparks.items()
    }


def test_a_group_is_loaded_from_the_newest_record_of_each_key(root, tmp_path):
    log = write_rich_log(root)
    events = events_of(tmp_path / "bootstrap", root)
    assert "all gone" not in events, "a group of tombstones is no group"
    newest = {}
    for record in log.records:
        newest[record.group_id, record.record_type, record.topic, record.topic_partition] = record
    for group_id, event in events.items():
        expected = [
            record
            for (name, *_), record in newest.items()
            if name == group_id and (record.offset_commit or record.group_metadata)
        ]
        records, _ = state_of(group_id, event)
        assert records == sorted(expected, key=place)
    assert set(events) == {AWKWARD, "later wins", "binary", "one gone", "members, then none"}


def test_only_the_groups_of_the_wanted_partitions_are_loaded(root, tmp_path):
    log = write_rich_log(root)
    by_partition = [set(events_of(tmp_path / str(p), root, [p])) for p in range(3)]
    assert by_partition == [
        {r.group_id for r in log.records if r.partition == p} - {"all gone"} for p in range(3)
    ]
    assert set(events_of(tmp_path / "two", root, {0, 2})) == by_partition[0] | by_partition[2]
    assert events_of(tmp_path / "none", root, []) == {}


def test_a_log_too_large_for_the_memory_is_taken_in_buckets_of_whole_groups(root, tmp_path):
    write_rich_log(root)
    whole = events_of(tmp_path / "whole", root)
    files = write_load_events(root, tmp_path / "cut", bucket_records=3)
    assert len(files) > 1
    cut = events_of(tmp_path / "again", root, bucket_records=3)
    assert {g: state_of(g, e) for g, e in cut.items()} == {
        g: state_of(g, e) for g, e in whole.items()
    }


def test_one_group_may_hold_a_hundred_thousand_offsets(root, tmp_path):
    log = Log(root)
    value = OffsetCommitValue(1, -1, "m" * 100, 5)
    log.append_rows(
        [Record(0, "offset_commit", "g", 5, n, "t", n, offset_commit=value) for n in range(100_000)]
    )
    (event,) = events_of(tmp_path / "bootstrap", root).values()
    assert len(decode_control(event[KEY_WIDTH:]).records) == 100_000


def test_columns_of_others_and_files_without_a_column_are_no_hindrance(root, tmp_path):
    log = write_rich_log(root)
    before = events_of(tmp_path / "before", root)
    rows = to_arrow(OFFSETS_TOPIC, [], {"segment": pa.array([], pa.int64())})
    wider = rows.append_column("checked_by", pa.array([], pa.string()))
    write_deltalake(log.uri, wider, mode="append", schema_mode="merge")
    one = to_arrow(OFFSETS_TOPIC, [commit("wide", 1, 5)], {"segment": pa.array([9], pa.int64())})
    at = one.schema.get_field_index("log_offset")
    one = one.set_column(at, "log_offset", pa.array([5_000], pa.int64()))
    write_deltalake(log.uri, one.append_column("checked_by", pa.array(["them"])), mode="append")
    after = events_of(tmp_path / "after", root)
    assert set(after) == {*before, "wide"}
    assert "them" not in after["wide"]


# --- requests that wait -------------------------------------------------------------------------

BODIES = {
    "find_coordinator": FindCoordinatorRequest(0),
    "join_group": JoinGroupRequest(
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", bytes(range(256))), JoinGroupProtocol("b", b"")),
        reason=AWKWARD,
    ),
    "sync_group": SyncGroupRequest(1, "m", None, None, None, (SyncGroupAssignment("m", b"\xff"),)),
    "heartbeat": heartbeat("x").heartbeat,
    "leave_group": LeaveGroupRequest((LeavingMember("m", None, AWKWARD), LeavingMember("", "i"))),
    "offset_commit": OffsetCommitRequest(
        topics=(OffsetCommitTopic("t", (OffsetCommitPartition(0, 2**63 - 1, None, -1, AWKWARD),)),),
    ),
    "offset_fetch": OffsetFetchRequest((OffsetFetchTopic("t", (0, 1)),), True),
    "describe_groups": DescribeGroupsRequest(False),
    "delete_groups": DeleteGroupsRequest(),
    "offset_delete": OffsetDeleteRequest((OffsetDeleteTopic("t", (0,)),)),
}


def requests_of_all_apis() -> list[RequestEvent]:
    good = [
        RequestEvent(f"r-{api}", AWKWARD, api, 3, "c", sent_at=1_700_000_000_000, **{api: body})
        for api, body in BODIES.items()
    ]
    return [
        *good,
        RequestEvent("before 1970", "g", "heartbeat", sent_at=-5, heartbeat=BODIES["heartbeat"]),
        RequestEvent("no time", "g", "heartbeat", principal="p", heartbeat=BODIES["heartbeat"]),
        RequestEvent("no body", "g", "join_group", sent_at=1),
        RequestEvent("no such api", "g", "produce", sent_at=1),
        RequestEvent("no api", "g", None, sent_at=1),
        RequestEvent(None, "g", "heartbeat", sent_at=1, heartbeat=BODIES["heartbeat"]),
        RequestEvent("no group", None, "heartbeat", client_id=AWKWARD),
    ]


def waiting_of(folder: Path, root: str) -> list[tuple[str, str]]:
    files = write_waiting_requests(root, open_table(root, REQUESTS), folder)
    tables = [pq.read_table(folder / file.path) for file in files]
    return [(row["group_id"], row["event"]) for table in tables for row in table.to_pylist()]


def meaning(events: list[tuple[str, str]]) -> list[str]:
    return sorted(
        repr((group, event[:KEY_WIDTH], decode_request(event[KEY_WIDTH:])))
        for group, event in events
    )


@pytest.mark.spark
def test_waiting_requests_mean_what_spark_would_have_packed(spark, root, tmp_path):
    open_appender(table_uri(root, REQUESTS)).append(to_requests(requests_of_all_apis()))
    ours = waiting_of(tmp_path / "bootstrap", root)
    version = open_table(root, REQUESTS).version()
    sparks = [(r["group_id"], r["event"]) for r in waiting_requests(spark, root, version).collect()]
    assert len(ours) == len(requests_of_all_apis())
    assert meaning(ours) == meaning(sparks)


@pytest.mark.spark
def test_what_was_rejected_is_not_brought_again(spark, root, tmp_path):
    broken = [RequestEvent(None, "g", "heartbeat", client_id=AWKWARD), heartbeat("r", None)]
    RequestLog(root).append(broken)
    version = open_table(root, REQUESTS).version()
    (first, second) = sorted(
        row["event"] for row in waiting_requests(spark, root, version).collect()
    )
    assert len(waiting_of(tmp_path / "both", root)) == 2
    rejected = [RejectedRequest(5, "no request_id", text) for text in (first[KEY_WIDTH:], "{")]
    open_appender(table_uri(root, REJECTED_REQUESTS)).append(to_arrow(REJECTED_REQUESTS, rejected))
    (left,) = waiting_of(tmp_path / "one", root)
    assert decode_request(left[1][KEY_WIDTH:]) == decode_request(second[KEY_WIDTH:])


def test_what_was_answered_does_not_wait(root, tmp_path):
    RequestLog(root).append([heartbeat(f"r{number}") for number in range(1_200)])
    Sink(root, CoordinatorSettings()).write([output(1_100)], "test", 0)
    waiting = waiting_of(tmp_path / "bootstrap", root)
    ids = {decode_request(event[KEY_WIDTH:]).request_id for _, event in waiting}
    assert ids == {f"r{number}" for number in range(1_100, 1_200)}
    assert len(waiting) == 100


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_streams_the_bootstrap_and_what_is_added_to_it(spark, root, tmp_path):
    write_rich_log(root)
    uri = f"{root}/bootstrap"
    bootstrap = bootstrap_without_spark(root, uri)
    assert bootstrap is not None
    protocol = DeltaTable(uri).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    seen: list[str] = []
    query = (
        read_events(spark, root, CoordinatorSettings(), bootstrap)
        .writeStream.foreachBatch(
            lambda rows, _: seen.extend(
                row["group_id"] for row in rows.collect() for _ in row["events"].split("\n")
            )
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        whole = sorted(seen)
        add_files(uri, write_load_events(root, Path(uri), {0}))
        query.processAllAvailable()
    finally:
        query.stop()
    assert whole == sorted(events_of(tmp_path / "again", root))
    assert sorted(seen[len(whole) :]) == sorted(events_of(tmp_path / "zero", root, {0}))


def test_a_bootstrap_replaces_the_one_before(root):
    write_rich_log(root)
    uri = f"{root}/bootstrap"
    bootstrap_without_spark(root, uri)
    once = DeltaTable(uri).to_pyarrow_table().num_rows
    bootstrap_without_spark(root, uri)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == once


@pytest.mark.spark
def test_strings_that_are_not_utf8_are_left_to_spark(spark, root, caplog):
    columns = to_requests([heartbeat("waits")])
    at = columns.schema.get_field_index("client_id")
    bad = pa.array([b"\xff"]).view(pa.string())
    write_deltalake(
        table_uri(root, REQUESTS), columns.set_column(at, "client_id", bad), mode="append"
    )
    bootstrap = prepare_bootstrap(spark, root, f"{root}/bootstrap")
    (row,) = spark.read.format("delta").load(bootstrap.uri).collect()
    assert '"request_id":"waits"' in row["event"]
    assert "Spark takes over" in caplog.text
