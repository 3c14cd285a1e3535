"""A table's history names each commit's operation as Delta's own engines do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec import structs

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import torn
from group_coordinator.pipeline.delta.appender import Appender, Epoch, raise_epoch
from group_coordinator.pipeline.delta.commit import APPEND, Action, Changes, operation_in
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.feature_removal import make_plain
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.torn import find_torn, mend
from group_coordinator.pipeline.delta.writer import Writer
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS, CoordinatorSettings, UpkeepSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import LEAST_FILES, retain
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics
from group_coordinator.schemas.tables import OFFSETS_HISTORY, RESPONSES, to_arrow
from tests.pipeline.delta.feature_tables import FEATURES, create
from tests.pipeline.offsets_log import Log, commit, upkeep
from tests.pipeline.rows import commit_record, output, response
from tests.pipeline.topics.logs import appender, batch, make

# Later than any file that a test writes.
NOW = 4_000_000_000_000
ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


def told(uri: str | Path, version: int | None = None) -> dict[str, Any]:
    """Return the commitInfo of a version, by default the newest, after a check that Spark reads it.

    Spark reads parameters and metrics as maps of strings, so no value may be a list or an object.
    """
    handle = DeltaTable(str(uri))
    newest = handle.version() if version is None else version
    content = commit_path(Path(uri) / "_delta_log", newest).read_text()
    (info,) = (
        line["commitInfo"] for line in map(json.loads, content.splitlines()) if "commitInfo" in line
    )
    for field in ("operationParameters", "operationMetrics"):
        assert all(isinstance(each, str | bool) for each in info.get(field, {}).values())
    return dict(info)


def operations(uri: str) -> list[str]:
    return [each["operation"] for each in reversed(DeltaTable(uri).history())]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    DeltaTable.create(str(tmp_path / "table"), pa.schema(ROWS.schema))
    return tmp_path / "table"


def test_an_append_is_a_write(table: Path) -> None:
    Appender(table).append(ROWS, "app", 3)
    info = told(table)
    assert (info["operation"], info["operationParameters"]) == ("WRITE", {"mode": "Append"})
    assert info["isBlindAppend"]


def test_an_append_of_a_streaming_query_names_the_query_and_its_batch(table: Path) -> None:
    Appender(table, is_sink=True).append(ROWS, "query-id", 3)
    info = told(table)
    assert info["operation"] == "STREAMING UPDATE"
    assert info["operationParameters"] == {
        "outputMode": "Append",
        "queryId": "query-id",
        "epochId": "3",
    }


def test_a_commit_of_identifiers_alone_names_them(table: Path) -> None:
    raise_epoch(str(table), Epoch(7, 1))
    info = told(table)
    assert info["operation"] == "Manual Update"
    assert info["operationParameters"] == {"appIds": '["coordinator-epoch-7"]'}


def test_a_rewrite_that_drops_rows_is_a_delete_with_their_number(table: Path) -> None:
    writer = Appender(table)
    for _ in range(3):
        writer.append(ROWS)
    kept, *dropped = data_files(DeltaTable(str(table)))
    copy = structs.replace(kept, path="copy.parquet", records=1)
    (table / kept.path).rename(table / copy.path)
    changes = Changes([copy], [kept, *dropped], predicate="n < 2")
    assert Writer(str(table), flushed=False).commit(changes) == 4
    info = told(table)
    assert (info["operation"], info["operationParameters"]) == (
        "DELETE",
        {"predicate": '["n < 2"]'},
    )
    sizes = [each.size for each in (kept, *dropped)]
    assert info["operationMetrics"] == {
        "numRemovedFiles": "3",
        "numRemovedBytes": str(sum(sizes)),
        "numAddedFiles": "1",
        "numAddedBytes": str(kept.size),
        "numCopiedRows": "1",
        "numDeletedRows": "5",
    }
    assert not info["isBlindAppend"]


def test_rows_are_not_counted_if_a_file_has_no_number_of_them(table: Path) -> None:
    write_deltalake(str(table), ROWS, mode="append")
    (file,) = data_files(DeltaTable(str(table)))
    changes = Changes([], [structs.replace(file, records=None)])
    assert Writer(str(table), flushed=False).commit(changes) == 2
    info = told(table)
    assert info["operationParameters"] == {"predicate": "[]"}
    assert "numDeletedRows" not in info["operationMetrics"]
    assert info["operationMetrics"]["numRemovedFiles"] == "1"


def test_a_commit_that_states_no_operation_counts_as_a_write() -> None:
    assert operation_in([Action(commit_info="by hand"), Action(commit_info={})]) == APPEND


def test_a_voided_commit_is_an_fsck(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn, "CONFIRM_S", 0.0)
    Appender(table).append(ROWS)
    commit_path(table / "_delta_log", 1).write_bytes(b"")
    mend(table, find_torn(table))
    assert told(table)["operation"] == "FSCK"


def test_a_table_that_is_made_plain_says_which_features_it_lost(tmp_path: Path) -> None:
    folder = create(tmp_path / "altered", *FEATURES["columnMapping"])
    make_plain(str(folder))
    info = told(folder, 1)
    assert info["operation"] == "DROP FEATURE"
    assert info["operationParameters"] == {"featureName": "columnMapping", "truncateHistory": False}


def test_a_batch_names_the_query_in_each_table(root: str) -> None:
    Sink(root, CoordinatorSettings()).write([output(1, [commit_record(0, 1)], 1, 1)], "query-id", 0)
    for name in ("offsets_topic", "group_events", "rejected_requests", "responses"):
        assert told(f"{root}/{name}")["operationParameters"]["queryId"] == "query-id"


def test_a_compaction_is_a_delete_and_says_how_many_rows_it_drops(tmp_path: Path) -> None:
    log = Log(str(tmp_path))
    log.append(commit("g", 1, 1), commit("g", 2, 2), commit("h", 1, 1))
    log.roll()
    log.append(commit("g", 3, 3))
    version = DeltaTable(log.uri).version()
    # At a time at which the removed record belongs to the history.
    compact(log.root, upkeep(), 10)
    info = told(log.uri, version + 1)
    assert info["operation"] == "DELETE"
    assert "superseded" in info["operationParameters"]["predicate"]
    metrics = info["operationMetrics"]
    assert (metrics["numDeletedRows"], metrics["numCopiedRows"]) == ("1", "2")
    assert told(table_uri(log.root, OFFSETS_HISTORY))["operation"] == "WRITE"


def test_upkeep_names_packing_properties_vacuum_and_retention(root: str) -> None:
    uri = table_uri(root, RESPONSES)
    writer = Appender(uri)
    for number in range(LEAST_FILES):
        writer.append(to_arrow(RESPONSES, [response(str(number))]))
    version = DeltaTable(uri).version()
    abandoned = Path(uri, "abandoned.parquet")
    abandoned.touch()
    os.utime(abandoned, (1, 1))
    retain(root, upkeep(vacuum_retention_ms=2 * HOUR_MS), clock_ms())
    assert operations(uri)[version + 1 :] == [
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "VACUUM START",
        "VACUUM END",
    ]
    packed = told(uri, version + 1)
    assert packed["operationParameters"] == {"predicate": "[]"}
    assert packed["operationMetrics"]["numRemovedFiles"] == str(LEAST_FILES)
    assert "numDeletedRows" not in packed["operationMetrics"]
    retain(root, upkeep(), clock_ms() + 100 * DAY_MS)
    removed = told(uri, operations(uri).index("DELETE"))
    assert removed["operationMetrics"]["numDeletedRows"] == str(LEAST_FILES)
    (limit,) = json.loads(removed["operationParameters"]["predicate"])
    assert limit.startswith("_metadata.file_modification_time < timestamp_millis(")


def test_retention_of_a_topic_is_a_delete_and_names_its_limits(root: str) -> None:
    topic = make(root, 1, retention_ms="0")
    appender(topic).append([batch(0, "a", "b")])
    retain_topics(root, UpkeepSettings(), NOW)
    number = operations(topic.table).index("DELETE")
    info = told(topic.table, number)
    assert "retention.ms=0" in info["operationParameters"]["predicate"]
    assert info["operationMetrics"]["numDeletedRows"] == "2"
