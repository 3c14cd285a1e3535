"""Tables of other releases: brought up to date, shared, or refused by name with what to do."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from msgspec.structs import replace

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.records.exporter import export
from group_coordinator.pipeline.settings import CoordinatorSettings, UpkeepSettings
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables import topic_catalogue
from group_coordinator.pipeline.tables.columns import LaterRelease, SchemaMismatch
from group_coordinator.pipeline.tables.format import FORMAT_PROPERTY
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import (
    ensure_table,
    ensure_tables,
    open_table,
    table_uri,
)
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.messages import JoinGroupProtocol, JoinGroupRequest, RequestEvent
from group_coordinator.schemas.rows import TopicChange
from group_coordinator.schemas.tables import (
    OFFSETS_TOPIC,
    REQUESTS,
    RESPONSES,
    TABLES,
    TOPICS,
    to_arrow,
    to_requests,
)
from tests.pipeline.rows import commit_record, heartbeat, output, rows, version
from tests.pipeline.tables.earlier import create, earlier, in_columns

DAY_MS = 86_400_000
LACKING = {
    "requests": (
        "principal",
        "join_group.reason",
        "offset_commit.topics.partitions.committed_metadata",
    ),
    "responses": ("error_message", "join_group.skip_assignment"),
    "offsets_topic": ("reason", "key", "value"),
    "offsets_history": ("key", "value"),
    "coordinators": ("to_node", "reason"),
    "group_events": ("client_host",),
}


@pytest.fixture
def earlier_root(tmp_path):
    """A root of an earlier release, with a request and a committed offset."""
    root = str(tmp_path / "earlier")
    for name, table in TABLES.items():
        create(root, table, earlier(table, *LACKING.get(name, ())))
    append_as_earlier(root, REQUESTS, to_requests([heartbeat("waits")]))
    segment = {"segment": pa.array([0], pa.int64()), "log_offset": pa.array([0], pa.int64())}
    records = to_arrow(OFFSETS_TOPIC, [commit_record(0, 7)], segment)
    append_as_earlier(root, OFFSETS_TOPIC, records)
    return root


def append_as_earlier(root: str, table, rows: pa.Table) -> None:
    known = earlier(table, *LACKING[table.name])
    Appender(table_uri(root, table)).append(in_columns(rows, known))


def join(request_id: str) -> RequestEvent:
    body = JoinGroupRequest(
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b""),),
        reason="why",
    )
    return RequestEvent(request_id, "g", "join_group", principal="p", join_group=body)


# --- a root of an earlier release -----------------------------------------------------------------


def test_a_start_adds_the_columns_that_tables_lack_and_says_so(earlier_root, caplog):
    with caplog.at_level("INFO"):
        ensure_tables(earlier_root)
    added = [message for message in caplog.messages if "added" in message]
    assert len(added) == len(LACKING), "one line for each table"
    (line,) = (message for message in added if "requests table" in message)
    assert sorted(line.partition("release: ")[2].split(", ")) == sorted(LACKING["requests"])
    for name, table in TABLES.items():
        handle = open_table(earlier_root, table)
        protocol = handle.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert set(pa.schema(handle.schema().to_arrow()).names) == set(table.schema.names), name


def test_tables_that_were_brought_up_to_date_stay_as_they_are(earlier_root):
    ensure_tables(earlier_root)
    before = {name: version(earlier_root, name) for name in TABLES}
    ensure_tables(earlier_root)
    assert {name: version(earlier_root, name) for name in TABLES} == before


def test_what_an_earlier_release_wrote_is_read_with_nulls(earlier_root):
    ensure_tables(earlier_root)
    RequestLog(earlier_root).append([join("new")])
    by_id = {row["request_id"]: row for row in rows(earlier_root, "requests")}
    assert by_id["waits"]["principal"] is None
    assert (by_id["new"]["principal"], by_id["new"]["join_group"]["reason"]) == ("p", "why")


def test_a_bootstrap_is_made_of_what_an_earlier_release_wrote(earlier_root, tmp_path):
    ensure_tables(earlier_root)
    bootstrap = prepare_bootstrap(earlier_root, str(tmp_path / "bootstrap"))
    events = DeltaTable(bootstrap.uri).to_pyarrow_table().to_pylist()
    loaded, waiting = sorted(event["event"][KEY_WIDTH:] for event in events)
    assert '"control":"load"' in loaded and '"offset":7' in loaded
    assert '"request_id":"waits"' in waiting


def test_the_offsets_topic_of_an_earlier_release_is_compacted(earlier_root):
    ensure_tables(earlier_root)
    for batch, offset in enumerate((8, 9)):
        sink = Sink(earlier_root, CoordinatorSettings(segment_ms=1))
        sink.write([output(records=[commit_record(0, offset)])], "q", batch)
    result = compact(earlier_root, UpkeepSettings(), clock_ms() + 2 * DAY_MS, force=True)
    assert (result.skipped, result.records_before) == (None, 2), "the newest segment is open"
    assert max(row["offset_commit"]["offset"] for row in rows(earlier_root, "offsets_topic")) == 9


def test_compaction_by_hand_adds_what_the_offsets_topic_of_an_earlier_release_lacks(earlier_root):
    for place in (1, 2):
        at = {"segment": pa.array([place], pa.int64()), "log_offset": pa.array([place], pa.int64())}
        records = to_arrow(OFFSETS_TOPIC, [commit_record(0, 7 + place)], at)
        append_as_earlier(earlier_root, OFFSETS_TOPIC, records)
    result = compact(earlier_root, UpkeepSettings(), clock_ms() + 2 * DAY_MS, force=True)
    assert (result.records_before, result.records_after) == (2, 1)
    left = sorted(rows(earlier_root, "offsets_topic"), key=lambda row: row["log_offset"])
    assert [(row["log_offset"], row["key"], row["value"]) for row in left] == [
        (1, None, None),
        (2, None, None),
    ]


def test_the_tables_of_an_earlier_release_are_read_before_anyone_upgrades_them(
    earlier_root, tmp_path
):
    catalog = Catalog(earlier_root)
    (offset,) = catalog.query("SELECT * FROM committed_offsets").as_dicts()
    assert (offset["group_id"], offset["committed_offset"]) == ("g", 7)
    (request,) = catalog.query("SELECT principal, join_group FROM requests").rows
    assert request == (None, None)
    assert catalog.query("SELECT reason FROM offset_history").rows == [(None,)]
    assert catalog.query("SELECT group_id, kind FROM groups").rows == [("g", "Classic")]
    newest = catalog.query('SELECT group_id, "key", "value" FROM newest_records')
    assert newest.rows == [("g", None, None)]
    export(earlier_root, str(tmp_path / "out.jsonl"), say=lambda _line: None)
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 1
    assert version(earlier_root, "offsets_topic") == 1, "a reader changes nothing"


def test_a_catalogue_of_an_earlier_release_is_brought_up_to_date_if_there_is_one(root, monkeypatch):
    ensure_tables(root)
    assert not DeltaTable.is_deltatable(table_uri(root, TOPICS))
    topic_catalogue.create_topic(root, "orders", 6)
    later = TOPICS.schema.append(pa.field("retention_ms", pa.int64()))
    monkeypatch.setattr(
        "group_coordinator.pipeline.tables.store.ON_DEMAND", (replace(TOPICS, schema=later),)
    )
    ensure_tables(root)
    assert "retention_ms" in open_table(root, TOPICS).to_pyarrow_table().column_names
    assert topic_catalogue.read_changes(root)[0].topic == "orders"


def test_starts_at_the_same_time_add_the_columns_once(earlier_root):
    starts = [threading.Thread(target=ensure_tables, args=(earlier_root,)) for _ in range(4)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert [name for name in TABLES if version(earlier_root, name) > 2] == []


def test_appends_go_on_while_columns_are_added(earlier_root):
    """An earlier release's process has its own log of the table in memory."""
    running = Appender(table_uri(earlier_root, REQUESTS))
    known = earlier(REQUESTS, *LACKING["requests"])
    running.append(in_columns(to_requests([heartbeat("before")]), known))
    ensure_tables(earlier_root)
    assert running.append(in_columns(to_requests([heartbeat("after")]), known))
    ids = {row["request_id"] for row in rows(earlier_root, "requests")}
    assert ids == {"waits", "before", "after"}


# --- a root of a later release --------------------------------------------------------------------


def test_columns_that_a_later_release_added_stay_null(root):
    handle = open_table(root, RESPONSES)
    handle.alter.add_columns([Field("took_ms", "long")])
    ensure_tables(root)
    Sink(root, CoordinatorSettings()).write([output(1)], "q", 0)
    (row,) = rows(root, "responses")
    assert (row["request_id"], row["took_ms"]) == ("r0", None)


def test_a_column_that_a_later_release_must_have_is_refused_by_name(tmp_path):
    schema = REQUESTS.schema.append(pa.field("tenant", pa.string(), nullable=False))
    create(str(tmp_path), REQUESTS, schema)
    with pytest.raises(
        LaterRelease, match=r"requests table at .*tenant must not be null.* Use that"
    ):
        ensure_table(str(tmp_path), REQUESTS)
    Catalog(str(tmp_path)).query("SELECT tenant FROM requests")


def test_a_table_of_a_later_format_is_refused_by_name(root, tmp_path):
    handle = open_table(root, OFFSETS_TOPIC)
    handle.alter.set_table_properties({FORMAT_PROPERTY: "2"}, raise_if_not_exists=False)
    with pytest.raises(
        LaterRelease, match=r"offsets_topic.* has format 2, and this release knows 1"
    ):
        ensure_tables(root)
    with pytest.raises(LaterRelease):
        Catalog(root).query("FROM offsets_topic")
    with pytest.raises(LaterRelease):
        export(root, str(tmp_path / "out.jsonl"), say=lambda _line: None)


# --- no root of ours ------------------------------------------------------------------------------


def test_a_table_with_other_columns_is_refused_and_left_as_it_is(tmp_path):
    schema = RESPONSES.schema.remove(0).set(0, pa.field("group_id", pa.int64()))
    create(str(tmp_path), RESPONSES, schema)
    with pytest.raises(SchemaMismatch) as refused:
        ensure_tables(str(tmp_path))
    assert "column request_id is missing" in str(refused.value)
    assert "column group_id is int64, not string" in str(refused.value)
    assert "responses" in str(refused.value)
    assert version(str(tmp_path), "responses") == 0


def test_a_nested_difference_is_named(tmp_path):
    index = RESPONSES.schema.get_field_index("find_coordinator")
    field = pa.field("find_coordinator", pa.struct([("partition", pa.int64())]))
    create(str(tmp_path), RESPONSES, RESPONSES.schema.set(index, field))
    with pytest.raises(SchemaMismatch, match=r"find_coordinator.partition is int64, not int32"):
        ensure_table(str(tmp_path), RESPONSES)


def test_a_struct_where_a_value_should_be_is_named(tmp_path):
    index = RESPONSES.schema.get_field_index("error")
    field = pa.field("error", pa.struct([("code", pa.int64())]))
    create(str(tmp_path), RESPONSES, RESPONSES.schema.set(index, field))
    with pytest.raises(SchemaMismatch, match="error is struct<code: int64>, not string"):
        ensure_table(str(tmp_path), RESPONSES)


def test_a_table_partitioned_otherwise_is_refused(tmp_path):
    DeltaTable.create(str(tmp_path / "offsets_topic"), OFFSETS_TOPIC.schema)
    with pytest.raises(SchemaMismatch, match="partitioned by"):
        ensure_table(str(tmp_path), OFFSETS_TOPIC)


def test_a_field_without_a_default_is_a_column_of_every_release():
    assert REQUESTS.required == ("request_id", "group_id", "api")
    assert OFFSETS_TOPIC.required == (
        "partition",
        "record_type",
        "group_id",
        "timestamp",
        "segment",
    )
    assert TOPICS.required == tuple(TopicChange.__struct_fields__)
