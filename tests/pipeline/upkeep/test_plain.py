"""A table that somebody has altered is plain again after `repair`, with its rows, or named."""

from __future__ import annotations

import json
import string
import struct as struct_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta import checkpoint, store_files
from group_coordinator.pipeline.delta import table as opening
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import encode_commit, txn_action
from group_coordinator.pipeline.delta.feature_removal import asked_features
from group_coordinator.pipeline.delta.log import Log, commit_path
from group_coordinator.pipeline.delta.protocol import UNDONE, UnsupportedTable
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.pipeline.upkeep import repair as repairing
from group_coordinator.pipeline.upkeep.repair import repair
from group_coordinator.schemas.tables import RESPONSES
from tests.pipeline.delta.feature_tables import FEATURES, column, create, protocol
from tests.pipeline.topics.logs import appender, make, of_producer, offsets, values
from tests.pipeline.topics.tables import opened

NUMBERS = pa.table({"n": pa.array([1], pa.int64())})


def mapped(name: str, type_: Any, physical: str) -> dict[str, Any]:
    number = int(physical[1:]) if physical[1:].isdigit() else 1
    return {
        "name": name,
        "type": type_,
        "nullable": True,
        "metadata": {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": physical,
        },
    }


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def renamed_table(folder: Path) -> Path:
    """A table whose columns, partitions and nested fields have other names in its two files."""
    pairs = {"type": "array", "elementType": struct(mapped("key", "string", "c5"))}
    pairs["containsNull"] = True
    fields = [
        mapped("p", "string", "c1"),
        mapped("n", "long", "c2"),
        mapped("inner", struct(mapped("text", "string", "c4"), mapped("new", "long", "c9")), "c3"),
        mapped("pairs", pairs, "c6"),
        mapped("later", "long", "c7"),
    ]
    create(
        folder,
        protocol(2, 5),
        {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9", "ours": "1"},
        fields,
        partitionColumns=["p"],
    )
    rows = pa.table(
        {
            "c2": pa.array([1, 2, 3], pa.int64()),
            "c3": pa.array([{"c4": "a"}, None, {"c4": None}], pa.struct([("c4", pa.string())])),
            "c6": pa.array(
                [[{"c5": "x"}, None], None, []], pa.list_(pa.struct([("c5", pa.string())]))
            ),
        }
    )
    lines: list[dict[str, Any]] = [txn_action("query", 7, 0)]
    for number, name in enumerate(["a", "b"]):
        path = f"part-{name}.parquet"
        pq.write_table(rows, folder / path)
        size = (folder / path).stat().st_size
        added = {"path": path, "partitionValues": {"c1": name}, "size": size}
        lines.append({"add": {**added, "modificationTime": 1_000 + number, "dataChange": True}})
    commit_path(folder / "_delta_log", 1).write_bytes(encode_commit(lines))
    return folder


def test_names_within_files_become_those_of_the_columns(tmp_path: Path) -> None:
    folder = renamed_table(tmp_path / "table")
    with pytest.raises(UnsupportedTable, match=r"columnMapping, .*`group-coordinator repair`"):
        Appender(folder)
    (told,) = repair(str(tmp_path))
    assert told.lines() == ["table: asks for columnMapping: to be made plain"]
    (done,) = repair(str(tmp_path), execute=True)
    assert done.lines() == ["table: asks for columnMapping: plain again"]
    assert repair(str(tmp_path)) == []

    handle = DeltaTable(str(folder))
    assert handle.protocol().min_reader_version == 1
    assert handle.protocol().min_writer_version == 2
    assert handle.metadata().configuration == {"ours": "1"}
    assert handle.transaction_version("query") == 7
    times = pa.table(handle.get_add_actions()).column("modification_time").cast(pa.int64())
    assert sorted(times.to_pylist()) == [1_000, 1_001]
    rows = handle.to_pyarrow_table().sort_by([("p", "ascending"), ("n", "ascending")])
    inner = [{"text": "a", "new": None}, None, {"text": None, "new": None}]
    assert rows.column("p").to_pylist() == [*"aaabbb"]
    assert rows.column("n").to_pylist() == [1, 2, 3] * 2
    assert rows.column("inner").to_pylist() == inner * 2
    assert rows.column("pairs").to_pylist() == [[{"key": "x"}, None], None, []] * 2
    assert rows.column("later").null_count == 6
    new = pa.table({"p": ["a"], "n": pa.array([4], pa.int64())})
    assert not Appender(folder).append(new, "query", 7), "what was written before is known"
    assert Appender(folder).append(new, "query", 8)


_Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
DELETED = (3, 4, 7, 11, 18, 29)


def vector(*rows: int) -> dict[str, Any]:
    """An inline vector of deleted rows; PROTOCOL.md, "Deletion Vector Format"."""
    # The magic, one bitmap of key 0, and that one: cookie, one container of key 0, its offset.
    head = struct_.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 16)
    content = head + struct_.pack(f"<{len(rows)}H", *rows)
    text = ""
    for (word,) in struct_.iter_unpack(">I", content):
        text += "".join(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    size = {"sizeInBytes": len(content), "cardinality": len(rows)}
    return {"storageType": "i", "pathOrInlineDv": text, **size}


@pytest.mark.parametrize("added_first", [False, True])
def test_rows_that_a_vector_deletes_are_gone_and_the_others_in_their_order(
    tmp_path: Path, added_first: bool
) -> None:
    """A commit adds a file with its vector, and removes it without; in any order."""
    folder = create(tmp_path / "table", *FEATURES["deletionVectors"])
    pq.write_table(pa.table({"n": pa.array(range(32), pa.int64())}), folder / "all.parquet")
    pq.write_table(NUMBERS, folder / "whole.parquet")
    told = {"partitionValues": {}, "modificationTime": 1_000, "dataChange": True}
    files = [
        {**told, "path": name, "size": (folder / name).stat().st_size}
        for name in ("all.parquet", "whole.parquet")
    ]
    log = folder / "_delta_log"
    commit_path(log, 1).write_bytes(encode_commit([{"add": each} for each in files]))
    change = [
        {"remove": {"path": "all.parquet", "dataChange": True, "deletionTimestamp": 0}},
        {"add": {**files[0], "stats": '{"numRecords": 32}', "deletionVector": vector(*DELETED)}},
    ]
    commit_path(log, 2).write_bytes(encode_commit(change[::-1] if added_first else change))
    assert repair(str(tmp_path), execute=True)[0].mended
    handle = DeltaTable(str(folder))
    assert "whole.parquet" in [Path(each).name for each in handle.file_uris()]
    (new,) = [each for each in handle.file_uris() if Path(each).name != "whole.parquet"]
    kept = [number for number in range(32) if number not in DELETED]
    assert pq.read_table(new).column("n").to_pylist() == kept
    assert handle.to_pyarrow_table().num_rows == 27


@pytest.mark.parametrize("feature", sorted(FEATURES.keys() & UNDONE.keys()))
def test_each_feature_that_can_be_undone_is(tmp_path: Path, feature: str) -> None:
    folder = create(tmp_path / "table", *FEATURES[feature])
    assert asked_features(str(folder)) == (feature,)
    (done,) = repair(str(tmp_path), execute=True)
    assert done.failure is None
    assert asked_features(str(folder)) == ()
    assert Appender(folder).append(NUMBERS)


def test_every_other_feature_is_named_with_the_way_out(tmp_path: Path) -> None:
    folder = create(tmp_path / "table", *FEATURES["rowTracking"])
    before = sorted(folder.rglob("*"))
    (left,) = repair(str(tmp_path), execute=True)
    assert not left.mended
    assert left.lines() == [
        f"the table at {folder} uses domainMetadata, rowTracking, which is not supported: run "
        "`ALTER TABLE ... DROP FEATURE domainMetadata`, `ALTER TABLE ... DROP FEATURE rowTracking` "
        "in Spark, and then `group-coordinator repair`"
    ]
    assert sorted(folder.rglob("*")) == before


def test_a_column_that_was_renamed_is_to_get_its_name_back(tmp_path: Path) -> None:
    ensure_table(str(tmp_path), RESPONSES)
    folder = tmp_path / "responses"
    text = DeltaTable(str(folder)).schema().to_json()
    fields = json.loads(text)["fields"]
    for field in fields:
        physical = field["name"]
        name = "asked" if physical == "request_id" else physical
        field.update(mapped(name, field["type"], physical))
    other = create(
        tmp_path / "other" / "responses",
        protocol(2, 5),
        {"delta.columnMapping.mode": "name"},
        fields,
    )
    (left,) = repair(str(other.parent), execute=True)
    assert left.lines() == [
        f"the table at {other} has no request_id: if ALTER TABLE has renamed a column, "
        "rename it back in Spark, and repair again"
    ]


def test_a_commit_that_fails_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = renamed_table(tmp_path / "table")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "create", full)
        with pytest.raises(OSError, match="No space"):
            repair(str(tmp_path), execute=True)
    assert asked_features(str(folder)) == ("columnMapping",)
    assert DeltaTable(str(folder)).version() == 1
    assert repair(str(tmp_path), execute=True)[0].mended


def test_a_writer_that_still_runs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "table", *FEATURES["checkConstraints"])

    def taken(*_: object) -> None:
        raise FileExistsError("version 1 is there")

    monkeypatch.setattr(Log, "create", taken)
    (left,) = repair(str(tmp_path), execute=True)
    assert left.failure is not None
    assert "stop all processes" in left.failure


def test_the_command_tells_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    create(tmp_path / "table", protocol(1, 7, "checkpointProtection"), {}, [column()])
    command = ["repair", "--root", str(tmp_path)]
    told = CliRunner().invoke(make_app(), command)
    assert "table: asks for checkpointProtection: to be made plain" in told.output
    done = CliRunner().invoke(make_app(), [*command, "--execute"])
    assert done.exit_code == 0
    assert "table: asks for checkpointProtection: plain again" in done.output
    assert "is torn or altered" in CliRunner().invoke(make_app(), command).output


def test_a_topics_own_table_goes_on_at_its_offsets(tmp_path: Path) -> None:
    root = str(tmp_path)
    topic = make(root)
    assert offsets(appender(topic).append([of_producer(0, "a", "b")])) == [0]
    DeltaTable(topic.table).alter.add_constraint({"known": "partition < 9"})
    with pytest.raises(UnsupportedTable, match="checkConstraints"):
        appender(topic).append([of_producer(2, "c")])
    (done,) = repair(root, execute=True)
    assert done.mended
    again = [of_producer(0, "a", "b"), of_producer(2, "c")]
    assert offsets(appender(topic).append(again)) == [0, 2]
    assert [value for _, value in values(opened(root))] == ["a", "b", "c"]


def test_a_roots_tables_in_a_store_are_made_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local folder stands for a store."""
    root = str(tmp_path)
    ensure_table(root, RESPONSES)
    DeltaTable(f"{root}/responses").alter.add_constraint({"known": "error_code < 999"})
    for module in (checkpoint, opening, repairing, store_files):
        monkeypatch.setattr(module, "local_folder", lambda _uri: None)
    (done,) = repair(root, execute=True)
    assert done.lines() == ["responses: asks for checkConstraints: plain again"]
    assert repair(root) == []
