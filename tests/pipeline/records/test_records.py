"""Export and import of the offsets topic: nothing is lost, and skipped records are named."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.pipeline.delta.appender import Epoch
from group_coordinator.pipeline.delta.writer import AppendConflict
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.records import importer as records_import
from group_coordinator.pipeline.records import record_file
from group_coordinator.pipeline.records.exporter import export
from group_coordinator.pipeline.records.importer import import_
from group_coordinator.pipeline.records.record_file import RawRecord, Tally
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings
from group_coordinator.pipeline.tables.store import ensure_table, open_table, table_uri
from group_coordinator.schemas.kafka.codec import encode_key, encode_value
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow
from tests.roots import make_tables

NOW = 1_700_000_000_000
SETTINGS = Settings()
FORMATS = pytest.mark.parametrize("ending", ["jsonl", "parquet"])


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def other(tmp_path: Path) -> str:
    return str(tmp_path / "other")


def offset(
    group_id: str, number: int | None, topic: str = "foo", expire: int = -1
) -> CoordinatorRecord:
    return CoordinatorRecord(
        partition_for(group_id, 50),
        OFFSET_COMMIT,
        group_id,
        NOW,
        topic=topic,
        topic_partition=0,
        offset_commit=None if number is None else OffsetCommitValue(number, -1, "md", NOW, expire),
    )


def group(group_id: str, generation: int | None, *member_ids: str) -> CoordinatorRecord:
    members = tuple(
        MemberMetadata(each, None, "client", "/host", 60_000, 45_000, b"\x00", b"\x01\x02")
        for each in member_ids
    )
    value = None
    if generation is not None:
        value = GroupMetadataValue("consumer", generation, "range", member_ids[0], NOW, members)
    return CoordinatorRecord(
        partition_for(group_id, 50), GROUP_METADATA, group_id, NOW, group_metadata=value
    )


LOG = [
    group("a", 1, "m1"),
    offset("a", 1),
    offset("b", 7, expire=NOW + 1),
    offset("a", 2),
    offset("a", 3, "bar"),
    group("a", 2, "m1", "m2"),
    offset("a", None, "bar"),
    group("gone", 4, "m"),
    group("gone", None),
]


def write(root: str, records: list[CoordinatorRecord], **columns: pa.Array) -> None:
    """Append records as a coordinator does, at the next log offsets of their partitions."""
    upcoming: dict[int, int] = defaultdict(int)
    for row in rows(root):
        upcoming[row["partition"]] = max(upcoming[row["partition"]], row["log_offset"] + 1)
    offsets = []
    for record in records:
        offsets.append(upcoming[record.partition])
        upcoming[record.partition] += 1
    given = {"log_offset": pa.array(offsets), "segment": pa.array([0] * len(records))}
    write_deltalake(
        table_uri(root, OFFSETS_TOPIC),
        to_arrow(OFFSETS_TOPIC, records, given | columns),
        mode="append",
    )


def rows(root: str) -> list[dict[str, Any]]:
    ensure_table(root, OFFSETS_TOPIC)
    return open_table(root, OFFSETS_TOPIC).to_pyarrow_table().to_pylist()


def records_of(root: str) -> list[CoordinatorRecord]:
    found = rows(root)
    for row in found:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    return [msgspec.convert(row, CoordinatorRecord) for row in found]


def groups(root: str) -> dict[str, ClassicGroup]:
    """Every group as a coordinator would load it."""
    logs: dict[str, list[CoordinatorRecord]] = defaultdict(list)
    for record in records_of(root):
        assert record.partition == partition_for(record.group_id, 50)
        logs[record.group_id].append(record)
    found = {group_id: replay(group_id, log) for group_id, log in logs.items()}
    return {group_id: group for group_id, group in found.items() if group is not None}


def log_offsets(root: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows(root):
        found[row["partition"]].append(row["log_offset"])
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def raw(record: CoordinatorRecord, number: int) -> RawRecord:
    return RawRecord(record.partition, number, NOW, encode_key(record), encode_value(record))


def write_lines(path: Path, *lines: RawRecord | str) -> str:
    texts = [
        line if isinstance(line, str) else msgspec.json.encode(line).decode() for line in lines
    ]
    path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return str(path)


def quiet(text: str) -> None:
    raise AssertionError(f"said {text!r} of a short run")


# --- there and back -------------------------------------------------------------------------------


@FORMATS
def test_groups_come_back_from_an_export_as_they_were(
    root: str, other: str, tmp_path: Path, ending: str
) -> None:
    write(root, LOG)
    file = str(tmp_path / f"records.{ending}")
    assert export(root, file, quiet) == Tally(records=9, tombstones=2)
    assert import_(other, file, SETTINGS, say=quiet) == Tally(records=9, tombstones=2)
    assert groups(other) == groups(root)
    assert set(groups(other)) == {"a", "b"}
    assert log_offsets(other) == log_offsets(root)
    assert {record.timestamp for record in records_of(other)} == {NOW}
    assert {record.reason for record in records_of(other)} == {"imported"}


def test_json_lines_hold_kafkas_bytes(root: str, tmp_path: Path) -> None:
    write(root, LOG[1:2] + LOG[6:7])
    export(root, str(tmp_path / "records.jsonl"), quiet)
    key = base64.b64encode(bytes.fromhex("0001 0001 61 0003 666f6f 00000000")).decode()
    value = bytes.fromhex("0003 0000000000000001 ffffffff 0002 6d64 0000018bcfe56800")
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "partition": 47,
        "offset": 0,
        "timestamp": NOW,
        "key": key,
        "value": base64.b64encode(value).decode(),
    }
    assert list(lines[0]) == ["partition", "offset", "timestamp", "key", "value"]
    assert lines[1]["value"] is None


def test_parquet_holds_kafkas_bytes(root: str, tmp_path: Path) -> None:
    write(root, LOG)
    export(root, str(tmp_path / "records.parquet"), quiet)
    found = pq.read_table(tmp_path / "records.parquet")
    assert found.schema.field("key").type == found.schema.field("value").type == pa.binary()
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [NOW * 1000] * 9
    assert set(found.column("key").to_pylist()) == {encode_key(record) for record in LOG}


def test_records_are_exported_by_partition_and_log_offset(root: str, tmp_path: Path) -> None:
    names = [f"group-{number}" for number in range(200)]
    for _ in range(3):
        write(root, [offset(name, 1) for name in reversed(names)])
    export(root, str(tmp_path / "records.parquet"), quiet)
    found = pq.read_table(tmp_path / "records.parquet", columns=["partition", "offset"]).to_pylist()
    places = [(row["partition"], row["offset"]) for row in found]
    assert len(places) == 600 and places == sorted(set(places))


@FORMATS
def test_an_empty_log_gives_an_empty_file(
    root: str, other: str, tmp_path: Path, ending: str
) -> None:
    make_tables(root)
    file = str(tmp_path / f"records.{ending}")
    assert export(root, file, quiet) == Tally()
    assert import_(other, file, SETTINGS, say=quiet) == Tally()
    assert rows(other) == []


def test_standard_output_and_input_are_json_lines(
    root: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, LOG)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    export(root, say=quiet)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(written.getvalue())))
    assert import_(other, "-", SETTINGS, say=quiet).records == 9
    assert groups(other) == groups(root)


def test_long_runs_say_how_far_they_are(
    root: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "PROGRESS_S", 0.0)
    write(root, LOG)
    said: list[str] = []
    file = str(tmp_path / "records.jsonl")
    export(root, file, said.append)
    skipped = "skipped 0 unknown and 0 corrupt"
    assert said == [f"exported 9 records, 2 of them tombstones; {skipped} so far"]
    import_(other, file, SETTINGS, say=said.append)
    assert said[1] == f"imported 9 records, 2 of them tombstones; {skipped} so far"


# --- where imported records go --------------------------------------------------------------------


def test_imported_records_come_after_those_that_are_there(root: str, tmp_path: Path) -> None:
    write(root, [offset("a", 1), offset("a", 2), offset("c", 9)])
    file = write_lines(tmp_path / "in.jsonl", raw(offset("a", 3), 500))
    import_(root, file, SETTINGS, say=quiet)
    assert groups(root)["a"].offsets["foo"][0].offset == 3
    assert groups(root)["c"].offsets["foo"][0].offset == 9
    assert log_offsets(root)[partition_for("a", 50)] == [0, 1, 2]


def test_the_partition_follows_from_the_settings(root: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", raw(offset("some-group", 3), 0))
    import_(
        root,
        file,
        Settings(group=GroupCoordinatorConfig(offsets_topic_num_partitions=7)),
        say=quiet,
    )
    assert rows(root)[0]["partition"] == partition_for("some-group", 7)


def test_a_full_segment_is_closed(root: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(record_file, "BATCH_ROWS", 3)
    file = write_lines(tmp_path / "in.jsonl", *(raw(offset("a", n), n) for n in range(7)))
    settings = Settings(coordinator=CoordinatorSettings(segment_bytes=1))
    import_(root, file, settings, say=quiet)
    segments = {row["log_offset"]: row["segment"] for row in rows(root)}
    assert segments == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 2}


def test_large_records_make_smaller_batches(root: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(record_file, "BATCH_BYTES", 100)
    file = write_lines(tmp_path / "in.jsonl", *(raw(offset("a", n), n) for n in range(6)))
    import_(root, file, SETTINGS, say=quiet)
    assert len(open_table(root, OFFSETS_TOPIC).file_uris()) == 2


# --- again ----------------------------------------------------------------------------------------


@pytest.mark.slow
@FORMATS
def test_an_import_that_is_repeated_writes_nothing(
    root: str, other: str, tmp_path: Path, ending: str
) -> None:
    write(root, LOG)
    file = str(tmp_path / f"records.{ending}")
    export(root, file, quiet)
    import_(other, file, SETTINGS, say=quiet)
    before = rows(other)
    assert import_(other, file, SETTINGS, say=quiet) == Tally(9, 2, repeated=9)
    assert rows(other) == before
    assert import_(other, file, SETTINGS, again=True, say=quiet).repeated == 0
    assert len(rows(other)) == 18


@pytest.mark.slow
def test_an_interrupted_import_goes_on_where_it_stopped(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "BATCH_ROWS", 2)
    file = write_lines(tmp_path / "in.jsonl", *(raw(offset("a", n), n) for n in range(7)))
    opened = records_import.Appender

    def failing(uri: str, epoch: Epoch) -> Any:
        appender = opened(uri, epoch)
        append = appender.append

        def limited(rows: pa.Table, app_id: str, version: int) -> bool:
            if version == 2:
                raise AppendConflict("lost")
            return append(rows, app_id, version)

        monkeypatch.setattr(appender, "append", limited)
        return appender

    with monkeypatch.context() as context:
        context.setattr(records_import, "Appender", failing)
        with pytest.raises(AppendConflict):
            import_(root, file, SETTINGS, say=quiet)
    assert len(rows(root)) == 4
    # A commit of another writer in between moves the rest, not the written records.
    write(root, [offset("a", 100)])
    assert import_(root, file, SETTINGS, say=quiet) == Tally(records=7, repeated=4)
    found = sorted(records_of(root), key=lambda record: record.log_offset or 0)
    numbers = [each.offset_commit.offset for each in found if each.offset_commit]
    assert numbers == [0, 1, 2, 3, 100, 4, 5, 6]
    assert log_offsets(root) == {partition_for("a", 50): list(range(8))}


# --- skipped records ------------------------------------------------------------------------------


def test_lines_that_cannot_be_read_are_skipped_and_named(root: str, tmp_path: Path) -> None:
    good = raw(offset("a", 1), 0)
    fields = json.loads(msgspec.json.encode(good))
    file = write_lines(
        tmp_path / "in.jsonl",
        good,
        "not json",
        "",
        json.dumps({**fields, "value": "not base64"}),
        json.dumps({name: fields[name] for name in fields if name != "value"}),
        msgspec.structs.replace(good, offset=1, key=b"\x00\x09share"),
        msgspec.structs.replace(good, offset=2, value=b"\x00\x09"),
        msgspec.structs.replace(good, offset=3, key=None),
        raw(offset("a", 2), 4),
    )
    tally = import_(root, file, SETTINGS, say=quiet)
    assert (tally.records, tally.unknown, tally.corrupt) == (2, 1, 5)
    assert [line.split(":")[0] for line in tally.named] == [f"line {n}" for n in (2, 4, 5, 6, 7)]
    assert tally.named[3:] == [
        "line 6: unknown key version 9",
        "line 7: Unknown offset message version: 9",
    ]
    assert str(tally) == "2 records, 0 of them tombstones; skipped 1 unknown and 5 corrupt"
    assert groups(root)["a"].offsets["foo"][0].offset == 2


def test_parquet_rows_that_cannot_be_read_are_skipped_and_named(root: str, tmp_path: Path) -> None:
    good = raw(offset("a", 1), 0)
    found = {
        "partition": [0, 0, 0, 0],
        "offset": [0, 1, 2, 3],
        "timestamp": [NOW, NOW, None, NOW],
        "key": [good.key, b"\x00\x09", good.key, b"\x00"],
        "value": [good.value, None, good.value, None],
    }
    file = str(tmp_path / "in.parquet")
    pq.write_table(pa.table(found), file)
    tally = import_(root, file, SETTINGS, say=quiet)
    assert (tally.records, tally.unknown, tally.corrupt) == (1, 1, 2)
    assert tally.named == [
        "partition 0 offset 1: unknown key version 9",
        "partition 0 offset 2: Expected `int`, got `null` - at `$.timestamp`",
        "partition 0 offset 3: a key of 1 bytes, too short for its version",
    ]


def test_rows_that_cannot_be_written_are_skipped_and_named(root: str, tmp_path: Path) -> None:
    records = [
        offset("a", 1),
        msgspec.structs.replace(offset("a", 1), record_type="share_group"),
        msgspec.structs.replace(offset("a", 1), topic=None),
        msgspec.structs.replace(offset("a", 1), record_type=GROUP_METADATA),
        offset("a", 1, topic="t" * 40_000),
    ]
    write(root, records, timestamp=pa.array([NOW] * 5, pa.timestamp("ms", tz="UTC")))
    nameless: Any = msgspec.structs.replace(offset("a", 1), group_id=None)
    write(root, [nameless])
    file = tmp_path / "out.jsonl"
    tally = export(root, str(file), quiet)
    assert (tally.records, tally.unknown, tally.corrupt) == (1, 1, 4)
    assert tally.named[0] == "partition 47 offset 1: unknown record type 'share_group'"
    assert tally.named[4].endswith("Expected `str`, got `null` - at `$.group_id`")
    assert len(file.read_text().splitlines()) == 1


def test_a_record_of_an_unknown_kind_goes_out_as_the_bytes_that_it_is(
    root: str, tmp_path: Path
) -> None:
    member = CoordinatorRecord(47, "member", "a", NOW, key=b"\0\5\0\1a\0\1m", value=b"\0\0")
    deleted = msgspec.structs.replace(member, value=None)
    write(root, [offset("a", 1), member, deleted])
    file = tmp_path / "out.jsonl"
    tally = export(root, str(file), quiet)
    assert (tally.records, tally.unknown, tally.corrupt) == (3, 0, 0)
    raws = [msgspec.json.decode(line, type=RawRecord) for line in file.read_bytes().splitlines()]
    assert [(raw.key, raw.value) for raw in raws[1:]] == [
        (member.key, member.value),
        (member.key, None),
    ]


def test_records_of_later_kinds_come_in_as_the_bytes_that_they_are_and_go_out_so(
    root: str, other: str, tmp_path: Path
) -> None:
    """Of Kafka's new consumer groups: their keys begin with the group, and may name a member."""
    raws = [
        RawRecord(7, number, NOW, kind.to_bytes(2, "big") + b"\0\3new\0\1m", b"\0\0anything")
        for number, kind in enumerate((3, 4, 5, 6, 7, 8, 16))
    ]
    other_member = msgspec.structs.replace(raws[2], offset=7, key=b"\0\5\0\3new\0\1n")
    deleted = msgspec.structs.replace(raws[0], offset=8, value=None)
    raws += [other_member, deleted, raw(offset("a", 1), 9), raw(offset("new", 1), 10)]
    file = write_lines(tmp_path / "in.jsonl", *raws)
    tally = import_(root, file, SETTINGS, say=quiet)
    assert (tally.records, tally.tombstones, tally.unknown, tally.corrupt) == (11, 1, 0, 0)
    kept = [row for row in rows(root) if row["key"] is not None]
    assert {row["group_id"] for row in kept} == {"new"}
    assert {row["partition"] for row in kept} == {partition_for("new", 50)}
    assert groups(root)["a"].unknown_kinds is None
    assert groups(root)["new"].unknown_kinds == (
        "consumer_group_current_member_assignment, consumer_group_member_metadata, "
        "consumer_group_partition_metadata, consumer_group_regular_expression, "
        "consumer_group_target_assignment_member, consumer_group_target_assignment_metadata"
    )
    out = tmp_path / "out.jsonl"
    export(root, str(out), quiet)
    found = [msgspec.json.decode(line, type=RawRecord) for line in out.read_bytes().splitlines()]
    assert [(each.key, each.value) for each in found if each.key != raws[9].key] == [
        (each.key, each.value) for each in raws if each.key != raws[9].key
    ]
    import_(other, str(out), SETTINGS, say=quiet)
    assert groups(other)["new"] == groups(root)["new"]


def test_no_more_than_the_first_few_are_named(root: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", *["?"] * 100)
    tally = import_(root, file, SETTINGS, say=quiet)
    assert tally.corrupt == 100
    assert len(tally.named) == record_file.DESCRIBED


# --- refused imports ------------------------------------------------------------------------------


def test_records_out_of_order_are_refused(root: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", raw(offset("a", 9), 9), raw(offset("a", 4), 4))
    with pytest.raises(Failure, match="line 2: offset 4 of partition 47 comes after offset 9"):
        import_(root, file, SETTINGS, say=quiet)


def test_a_folder_of_parquet_is_sorted(root: str, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    for part, number in (("a", 9), ("b", 4)):
        record = raw(offset("a", number), number)
        pq.write_table(to_arrow(record_file.RAW_RECORDS, [record]), folder / f"{part}.parquet")
    (folder / "_SUCCESS").touch()
    assert import_(root, str(folder), SETTINGS, say=quiet).records == 2
    assert groups(root)["a"].offsets["foo"][0].offset == 9


def test_a_root_without_an_offsets_topic_is_refused(root: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="there is no offsets topic under"):
        export(root, str(tmp_path / "out.jsonl"), quiet)
    assert list(tmp_path.iterdir()) == []


def test_an_ending_that_tells_no_format_is_refused(root: str, tmp_path: Path) -> None:
    make_tables(root)
    with pytest.raises(
        Failure, match=r"must end in \.jsonl or \.parquet, which determines its format"
    ):
        export(root, str(tmp_path / "out.csv"), quiet)
    with pytest.raises(
        Failure, match=r"must end in \.jsonl or \.parquet, which determines its format"
    ):
        import_(root, str(tmp_path / "in.csv"), SETTINGS, say=quiet)


def test_a_source_that_is_not_there_makes_no_tables(root: str, tmp_path: Path) -> None:
    for name in ("in.jsonl", "in.parquet"):
        with pytest.raises(FileNotFoundError):
            import_(root, str(tmp_path / name), SETTINGS, say=quiet)
    assert not Path(root).exists()


def test_a_file_that_is_not_parquet_is_refused(root: str, tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    file.write_text("{}\n")
    with pytest.raises(Failure, match="is not Parquet"):
        import_(root, str(file), SETTINGS, say=quiet)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Failure, match=r"there is no \.parquet file in"):
        import_(root, str(tmp_path / "empty"), SETTINGS, say=quiet)


def test_parquet_of_other_columns_is_refused(root: str, tmp_path: Path) -> None:
    file = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({"partition": [1], "offset": [1], "key": ["text"]}), file)
    with pytest.raises(Failure) as failed:
        import_(root, file, SETTINGS, say=quiet)
    assert str(failed.value) == (
        "the file has no records to import: column timestamp is missing; column key cannot be "
        "string; column value is missing"
    )


def test_an_export_that_fails_leaves_the_file_as_it_was(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, LOG)
    file = tmp_path / "out.jsonl"
    file.write_text("before\n")
    monkeypatch.setattr(record_file, "SORT_MEMORY", "no size")
    with pytest.raises(Failure, match="cannot read the records"):
        export(root, str(file), quiet)
    assert file.read_text() == "before\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "root"]
