"""What loads groups: the newest records of each, whoever wrote the offsets topic."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.control import decode_control, readable_records
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.pipeline.node.load_events import (
    groups_with_records,
    offsets_topic_view,
    write_load_events,
)
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, KEY_WIDTH
from group_coordinator.schemas.records import (
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow
from tests.pipeline.node.target import new_target, with_column
from tests.pipeline.offsets_log import Log, commit

AWKWARD = 'quotes " and \\ and\nnew\tlines \x00\x1f\x7f, Grüße 🎉 \u2028'


def stored(group: str, *members: MemberMetadata, generation: int = 1) -> CoordinatorRecord:
    value = GroupMetadataValue("consumer", generation, "range", None, -1, members)
    return CoordinatorRecord(len(group) % 3, "group_metadata", group, 7, group_metadata=value)


def member(name: str, instance: str | None = None, blob: bytes = b"") -> MemberMetadata:
    return MemberMetadata(name, instance, AWKWARD, "/h", 60_000, 10_000, blob, blob[::-1])


def awkward_commit(group: str, topic: str, offset: int) -> CoordinatorRecord:
    value = OffsetCommitValue(offset, 3, AWKWARD, 5, 99)
    at = 1_700_000_000_123
    return CoordinatorRecord(
        len(group) % 3, "offset_commit", group, at, None, topic, 1, offset_commit=value
    )


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
            CoordinatorRecord(
                0, "offset_commit", None, 5, 900, "t", 0, OffsetCommitValue(1, 1, "", 1)
            ),
            CoordinatorRecord(
                0, "offset_commit", "no place", 5, None, "t", 0, OffsetCommitValue(1, 1, "", 1)
            ),
            CoordinatorRecord(0, "share_group", "of others", 5, 901),
        ]
    )
    return log


def events_of(root: str, partitions: Collection[int] | None = None, **how) -> dict[str, str]:
    with open_engine() as engine:
        target = new_target(engine)
        files = write_load_events(
            engine, offsets_topic_view(engine, root), target, partitions, **how
        )
        tables = [pq.read_table(target.local(file)) for file in files]
    return {row["group_id"]: row["event"] for table in tables for row in table.to_pylist()}


def place(record: CoordinatorRecord) -> int:
    assert record.log_offset is not None
    return record.log_offset


def state_of(group_id: str, event: str):
    """What a coordinator makes of a group's event; the record order is anybody's."""
    assert event.startswith(FIRST_KEY)
    records, problems = readable_records(decode_control(event[KEY_WIDTH:]).records)
    assert not problems
    ordered = sorted(records, key=place)
    return ordered, msgspec.json.encode(replay(group_id, ordered))


def test_a_group_is_loaded_from_the_newest_record_of_each_key(root):
    log = write_rich_log(root)
    events = events_of(root)
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


def test_only_the_groups_of_the_wanted_partitions_are_loaded(root):
    log = write_rich_log(root)
    by_partition = [set(events_of(root, [p])) for p in range(3)]
    assert by_partition == [
        {r.group_id for r in log.records if r.partition == p} - {"all gone"} for p in range(3)
    ]
    assert set(events_of(root, {0, 2})) == by_partition[0] | by_partition[2]
    assert events_of(root, []) == {}


def test_a_log_too_large_for_the_memory_is_taken_in_buckets_of_whole_groups(root):
    write_rich_log(root)
    whole = events_of(root)
    with open_engine() as engine:
        topic = offsets_topic_view(engine, root)
        assert len(write_load_events(engine, topic, new_target(engine), bucket_records=3)) > 1
    cut = events_of(root, bucket_records=3)
    assert {g: state_of(g, e) for g, e in cut.items()} == {
        g: state_of(g, e) for g, e in whole.items()
    }


@pytest.mark.slow
def test_one_group_may_hold_a_hundred_thousand_offsets(root):
    log = Log(root)
    value = OffsetCommitValue(1, -1, "m" * 100, 5)
    log.append_rows(
        [
            CoordinatorRecord(0, "offset_commit", "g", 5, n, "t", n, offset_commit=value)
            for n in range(100_000)
        ]
    )
    (event,) = events_of(root).values()
    assert len(decode_control(event[KEY_WIDTH:]).records) == 100_000


def test_columns_of_others_and_files_without_a_column_are_no_hindrance(root):
    log = write_rich_log(root)
    before = events_of(root)
    rows = to_arrow(OFFSETS_TOPIC, [], {"segment": pa.array([], pa.int64())})
    wider = rows.append_column("checked_by", pa.array([], pa.string()))
    write_deltalake(log.uri, wider, mode="append", schema_mode="merge")
    one = to_arrow(OFFSETS_TOPIC, [commit("wide", 1, 5)], {"segment": pa.array([9], pa.int64())})
    at = one.schema.get_field_index("log_offset")
    one = one.set_column(at, "log_offset", pa.array([5_000], pa.int64()))
    write_deltalake(log.uri, one.append_column("checked_by", pa.array(["them"])), mode="append")
    after = events_of(root)
    assert set(after) == {*before, "wide"}
    assert "them" not in after["wide"]


def test_rows_of_nobody_are_left_out_and_named(root, caplog):
    log = Log(root)
    value = OffsetCommitValue(1, -1, "m", 5)
    log.append_rows(
        [
            CoordinatorRecord(0, "offset_commit", "a", 5, 1, "t", 0, value),
            CoordinatorRecord(0, "share_group", None, 5, 2, "t", 1, value),
            CoordinatorRecord(0, "offset_commit", None, 5, 3, "t", 0, value),
            CoordinatorRecord(0, None, "a", 5, 4, "t", 0, value),
        ]
    )
    with caplog.at_level(logging.WARNING):
        assert set(events_of(root)) == {"a"}
    assert sorted(record.getMessage() for record in caplog.records) == [
        "offsets topic: 1 rows of type 'offset_commit' skipped",
        "offsets topic: 1 rows of type 'share_group' skipped",
        "offsets topic: 1 rows of type None skipped",
    ]


@pytest.mark.parametrize("how", [{}, {"bucket_records": 3}], ids=["whole", "in buckets"])
def test_a_group_with_records_of_unknown_kinds_is_loaded_as_that_and_named(root, caplog, how):
    log = Log(root)
    log.append(commit("known", 1, 5), commit("ours once", 1, 5), commit("theirs", 1, 5))
    log.append(unknown("theirs", "member", b"1", b""), unknown("theirs", "member", b"2", b"v"))
    log.append(unknown("theirs", "epoch", b"", b"v"), unknown("ours once", "member", b"1", b"v"))
    log.roll()
    log.append(unknown("theirs", "member", b"1", None), unknown("ours once", "member", b"1", None))
    log.append(unknown("only a tombstone", "member", b"1", None))
    with caplog.at_level(logging.WARNING):
        events = events_of(root, **how)
    groups = {name: loaded_group(name, event) for name, event in events.items()}
    assert {name: group.unknown_kinds for name, group in groups.items()} == {
        "known": None,
        "ours once": None,
        "theirs": "epoch, member",
    }
    assert all(groups[name].offsets for name in ("known", "ours once"))
    told = [record.getMessage() for record in caplog.records if "skipped" not in record.msg]
    assert [line for line in told if "release" in line] == [
        f"offsets topic: 1 groups have records of type '{kind}', which this release does not know; "
        "requests to these groups are refused"
        for kind in ("epoch", "member")
    ]
    elsewhere = {0, 1, 2} - {len("theirs") % 3}
    assert "theirs" not in events_of(root, elsewhere, **how)


def unknown(group: str, kind: str, key: bytes, value: bytes | None) -> CoordinatorRecord:
    return CoordinatorRecord(len(group) % 3, kind, group, 5, key=key, value=value)


def loaded_group(name: str, event: str) -> ClassicGroup:
    records, problems = readable_records(decode_control(event[KEY_WIDTH:]).records)
    assert not problems
    group = replay(name, records)
    assert group is not None
    return group


@pytest.mark.slow
def test_strings_that_are_not_utf8_are_replaced_and_nothing_else_is(root, caplog):
    """Only another writer than a coordinator writes such strings."""
    log = write_rich_log(root)
    rows = to_arrow(OFFSETS_TOPIC, [commit("", 7, 5)], {"segment": pa.array([9], pa.int64())})
    foreign = with_column(with_column(rows, "group_id", b"caf\xe9"), "request_id", b"\xff")
    at = foreign.schema.get_field_index("log_offset")
    foreign = foreign.set_column(at, "log_offset", pa.array([5_000], pa.int64()))
    before = events_of(root)
    assert "UTF-8" not in caplog.text
    write_deltalake(log.uri, foreign, mode="append", partition_by=["segment"])
    assert events_of(root, bucket_records=3).keys() == {*before, "caf\ufffd"}
    after = events_of(root)
    records, _ = state_of("caf\ufffd", after.pop("caf\ufffd"))
    assert [record.offset_commit.offset for record in records] == [7]
    assert {g: state_of(g, e) for g, e in after.items()} == {
        g: state_of(g, e) for g, e in before.items()
    }
    assert "UTF-8" in caplog.text
    with open_engine() as engine:
        assert "caf\ufffd" in groups_with_records(engine, root, range(3))


def test_elsewhere_than_on_a_local_disk_the_same_groups_are_loaded(root, monkeypatch):
    write_rich_log(root)
    here = {g: state_of(g, e) for g, e in events_of(root).items()}
    monkeypatch.setattr("group_coordinator.pipeline.delta.table_files.local_folder", lambda _: None)
    assert {g: state_of(g, e) for g, e in events_of(root).items()} == here
