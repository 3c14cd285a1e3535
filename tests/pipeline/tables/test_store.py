"""Tables are created once, and one that is not ours is refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.tables.request_log import RequestLog
from pipeline.tables.store import SchemaMismatch, ensure_table, ensure_tables, open_table
from schemas.tables import OFFSETS_TOPIC, REQUESTS, RESPONSES, TABLES
from tests.pipeline.rows import heartbeat, rows, version


def test_every_table_is_made_at_the_oldest_protocol(root):
    for table in TABLES.values():
        handle = open_table(root, table)
        protocol = handle.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert handle.metadata().partition_columns == list(table.partition_by)
        assert int(handle.metadata().configuration["delta.checkpointInterval"]) >= 100


def test_tables_that_are_there_stay_as_they_are(root):
    ensure_tables(root)
    assert {version(root, name) for name in TABLES} == {0}


def test_a_table_with_other_columns_is_refused(tmp_path):
    schema = RESPONSES.schema.remove(0).set(0, pa.field("group_id", pa.int64()))
    DeltaTable.create(str(tmp_path / "responses"), schema)
    with pytest.raises(SchemaMismatch) as refused:
        ensure_tables(str(tmp_path))
    assert "column request_id is missing" in str(refused.value)
    assert "column group_id is int64, not string" in str(refused.value)
    assert "responses" in str(refused.value)


def test_a_nested_difference_is_named(tmp_path):
    index = RESPONSES.schema.get_field_index("find_coordinator")
    field = pa.field("find_coordinator", pa.struct([("partition", pa.int64())]))
    DeltaTable.create(str(tmp_path / "responses"), RESPONSES.schema.set(index, field))
    with pytest.raises(SchemaMismatch, match="find_coordinator is struct<partition: int64>, not"):
        ensure_table(str(tmp_path), RESPONSES)


def test_a_table_partitioned_otherwise_is_refused(tmp_path):
    DeltaTable.create(str(tmp_path / "offsets_topic"), OFFSETS_TOPIC.schema)
    with pytest.raises(SchemaMismatch, match="partitioned by"):
        ensure_table(str(tmp_path), OFFSETS_TOPIC)


def test_columns_beside_ours_are_left_alone(tmp_path):
    schema = REQUESTS.schema.append(pa.field("trace_id", pa.string()))
    DeltaTable.create(str(tmp_path / "requests"), schema)
    RequestLog(str(tmp_path)).append([heartbeat("a")])
    (row,) = rows(str(tmp_path), "requests")
    assert (row["request_id"], row["trace_id"]) == ("a", None)


def test_requests_are_appended_beside_those_of_others(root):
    log = RequestLog(root)
    log.append([heartbeat("a"), heartbeat("b")])
    write_deltalake(
        f"{root}/requests",
        pa.table({"request_id": ["by hand"]}),
        mode="append",
        schema_mode="merge",
    )
    log.append([heartbeat("c")])
    assert {row["request_id"] for row in rows(root, "requests")} == {"a", "b", "c", "by hand"}
