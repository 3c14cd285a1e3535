"""DuckDB reads the files of a plain table itself, and shows the rows that delta-rs would show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.replay import read_plain_table
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor import catalog as catalog_module
from group_coordinator.pipeline.monitor.catalog import Catalog, QueryError
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.schemas.records import GroupEvent
from group_coordinator.schemas.rows import SQL_NAMES
from group_coordinator.schemas.tables import (
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REQUESTS,
    to_arrow,
    to_requests,
)
from tests.pipeline.offsets_log import Log, commit, stored
from tests.pipeline.rows import heartbeat
from tests.pipeline.tables.test_columns import LACKING, create, earlier, in_columns, join

QUERY = "SELECT * FROM offsets_topic ORDER BY ALL"


@pytest.fixture
def log(root: str) -> Log:
    log = Log(root)
    log.append(commit("g", 1, 1_000), stored("g", 1, 1_000))
    log.append(commit("it's", 2, 2_000))
    return log


@pytest.fixture
def by_arrow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are read by Arrow from now on."""
    names: list[str] = []
    show = Catalog._create_arrow_view

    def noted(self: Catalog, name: str, rows: Any) -> None:
        names.append(name)
        show(self, name, rows)

    monkeypatch.setattr(Catalog, "_create_arrow_view", noted)
    return names


def through_arrow(root: str, query: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    with monkeypatch.context() as patched:
        patched.setattr(catalog_module, "files_query", lambda *_: None)
        return Catalog(root).query(query).rows


def assert_read_by_files(
    root: str, by_arrow: list[str], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    found = Catalog(root).query(QUERY).rows
    assert len(found) == rows
    assert by_arrow == []
    assert found == through_arrow(root, QUERY, monkeypatch)


def handle(log: Log) -> DeltaTable:
    return open_delta(table_uri(log.root, OFFSETS_TOPIC))


def test_a_plain_table_is_read_without_arrow(log, by_arrow, monkeypatch) -> None:
    assert_read_by_files(log.root, by_arrow, monkeypatch, 3)


def test_what_was_rewritten_and_what_a_delta_checkpoint_says(log, by_arrow, monkeypatch) -> None:
    handle(log).optimize.compact()
    log.append(commit("g", 3, 3_000))
    clean_log(handle(log))
    log.append(commit("g", 4, 4_000))
    assert_read_by_files(log.root, by_arrow, monkeypatch, 5)


def test_a_log_that_is_cleaned_up_while_it_is_read(log) -> None:
    clean_log(handle(log))
    folder = Path(table_uri(log.root, OFFSETS_TOPIC))
    asked = []

    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = catalog_module.duckdb.execute(sql).fetchall()
        asked.append(sql)
        if len(asked) == 1:
            log.append(commit("g", 5, 5_000))
            newest = handle(log).version()
            clean_log(handle(log))
            (folder / "_delta_log" / f"{newest:020}.json").unlink()
        return found

    table = read_plain_table(folder, ask)
    assert table is not None
    assert len(asked) == 2
    assert (table.version, len(table.files)) == (handle(log).version(), 3)


def test_a_file_that_lacks_a_column_which_its_table_was_given_later(
    tmp_path, by_arrow, monkeypatch
) -> None:
    root = str(tmp_path)
    known = earlier(GROUP_EVENTS, *LACKING["group_events"])
    create(root, GROUP_EVENTS, known)
    before, after = (to_arrow(GROUP_EVENTS, [GroupEvent(5, "g", name)]) for name in "ba")
    Appender(table_uri(root, GROUP_EVENTS)).append(in_columns(before, known))
    ensure_tables(root)
    Appender(table_uri(root, GROUP_EVENTS)).append(after)
    catalog = Catalog(root)
    query = "SELECT * FROM group_events ORDER BY event"
    told = catalog.query(query)
    found = told.rows
    assert [row[2] for row in found] == ["a", "b"]
    assert by_arrow == ["group_events"]
    assert catalog.query(query).rows == found == through_arrow(root, query, monkeypatch)
    names = [SQL_NAMES.get(name, name) for name in GROUP_EVENTS.schema.names]
    assert told.columns == [*names, "at"]
    in_table = DeltaTable(table_uri(root, GROUP_EVENTS)).schema().to_arrow()
    assert in_table.names != told.columns, "the column came to the end of the table"


def test_a_file_of_requests_lacks_what_no_request_of_it_has(
    tmp_path, by_arrow, monkeypatch
) -> None:
    root = str(tmp_path)
    known = earlier(REQUESTS, *LACKING["requests"])
    create(root, REQUESTS, known)
    before = in_columns(to_requests([heartbeat("before")]), known)
    Appender(table_uri(root, REQUESTS)).append(before)
    ensure_tables(root)
    RequestLog(root).append([heartbeat("after"), join("joins")])
    RequestLog(root).append([heartbeat("at last")])
    names = "request_id, sent_at, principal, heartbeat, join_group.reason, offset_commit"
    query = f"SELECT {names} FROM requests ORDER BY request_id"
    found = Catalog(root).query(query).rows
    assert [row[0] for row in found] == ["after", "at last", "before", "joins"]
    assert [row[4] for row in found] == [None, None, None, "why"]
    assert by_arrow == []
    assert found == through_arrow(root, query, monkeypatch)


def test_a_table_that_wants_another_reader_is_read_by_arrow(log, by_arrow) -> None:
    commits = Path(table_uri(log.root, OFFSETS_TOPIC)) / "_delta_log"
    first = commits / f"{0:020}.json"
    text = first.read_text("utf-8")
    first.write_text(text.replace('"minReaderVersion":1', '"minReaderVersion":2'), "utf-8")
    assert len(Catalog(log.root).query(QUERY).rows) == 3
    assert by_arrow == ["offsets_topic"]


@pytest.mark.parametrize("name", ["a[b]c", "segment=7", "topic=t", "it's", "a*b?"])
def test_a_folder_whose_name_means_something_to_duckdb(tmp_path, name, monkeypatch) -> None:
    root = str(tmp_path / name)
    Log(root).append(commit("g", 1, 1_000))
    found = Catalog(root).query(QUERY).rows
    assert len(found) == 1
    assert found == through_arrow(root, QUERY, monkeypatch)


def test_a_commit_that_is_torn_is_named(log) -> None:
    folder = Path(table_uri(log.root, OFFSETS_TOPIC)) / "_delta_log"
    newest = max(folder.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(Failure, match=r"version \d+ of .*offsets_topic.* cannot be read"):
        Catalog(log.root).query(QUERY)


def test_a_file_that_was_deleted_meanwhile_is_named(log) -> None:
    catalog = Catalog(log.root)
    catalog.query("SELECT count(*) FROM offsets_topic")
    for path in Path(table_uri(log.root, OFFSETS_TOPIC)).rglob("part-*.parquet"):
        path.unlink()
    with pytest.raises(QueryError, match=r"part-.*\.parquet"):
        catalog.query(QUERY)
