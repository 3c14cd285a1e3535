"""Tables are created once, and left as they are."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables, open_table
from group_coordinator.schemas.tables import REQUESTS, TABLES
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


def test_a_mistyped_root_is_not_made(tmp_path):
    nowhere = tmp_path / "nowhere"
    run, app = CliRunner().invoke, make_app()
    command = ["topics", "create", "t", "--partitions", "1", "--root", str(nowhere)]
    assert str(run(app, command).exception) == f"there is no root {nowhere}; --create-root makes it"
    assert not nowhere.exists()
    assert run(app, [*command, "--create-root"]).exit_code == 0
    assert nowhere.exists()
