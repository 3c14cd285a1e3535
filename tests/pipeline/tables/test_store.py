"""Tables are created once, and left as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from group_coordinator.coordinator.ownership import CLAIMED
from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.tables import store
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import (
    TableMissing,
    ensure_tables,
    open_table,
    table_uri,
)
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import (
    COORDINATORS,
    OFFSETS_TOPIC,
    REQUESTS,
    TABLES,
    to_arrow,
)
from tests.pipeline.rows import heartbeat, rows, version
from tests.pipeline.tables.away import away_once


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


def coordinators_have_run(root):
    lease = CoordinatorEvent(1_000, 0, CLAIMED, 1, 0, "h", 9092)
    Appender(table_uri(root, COORDINATORS)).append(to_arrow(COORDINATORS, [lease]))


def test_an_offsets_topic_that_is_gone_is_not_made_anew(root):
    """A coordinator would start without groups, and every consumer begin anew."""
    coordinators_have_run(root)
    offsets = Path(table_uri(root, OFFSETS_TOPIC))
    gone = offsets.rename(f"{root}/gone")
    with pytest.raises(TableMissing, match=rf"{offsets}, which has all groups and offsets"):
        ensure_tables(root)
    assert not offsets.exists()
    gone.rename(offsets)
    ensure_tables(root)


def test_an_offsets_topic_that_is_away_for_one_look_is_there(root, monkeypatch):
    coordinators_have_run(root)
    monkeypatch.setattr(store, "has_table", away_once())
    ensure_tables(root)


def test_a_first_start_that_was_killed_goes_on(root):
    """No coordinator had run: of what none recorded, nothing is gone."""
    shutil.rmtree(table_uri(root, OFFSETS_TOPIC))
    ensure_tables(root)
    assert version(root, "offsets_topic") == 0


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
    assert (
        str(run(app, command).exception) == f"there is no root {nowhere}; --create-root creates it"
    )
    assert not nowhere.exists()
    assert run(app, [*command, "--create-root"]).exit_code == 0
    assert nowhere.exists()
