"""What a new checkpoint starts from: the groups of the offsets topic, and who still waits."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coordinator.group.control import decode_control, readable_records
from coordinator.group.log import replay
from pipeline.node.bootstrap import load_events, prepare_bootstrap, read, warn_of_others
from pipeline.node.handover import begun_with
from pipeline.settings import CoordinatorSettings
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.sink import Sink
from pipeline.stream.source import FIRST_KEY, KEY_WIDTH
from pipeline.tables.request_log import RequestLog
from pipeline.tables.store import open_table
from schemas.records import GroupMetadataValue, MemberMetadata, OffsetCommitValue, Record
from schemas.tables import OFFSETS_TOPIC
from tests.pipeline.rows import heartbeat, output

pytestmark = pytest.mark.spark


def offset(group: str, partition: int, value: int | None, record_type: str = "offset_commit"):
    committed = None if value is None else OffsetCommitValue(value, -1, "m", 5)
    return Record(
        3, record_type, group, 7, topic="t", topic_partition=partition, offset_commit=committed
    )


def group(group_id: str, generation: int) -> Record:
    member = MemberMetadata("m-1", None, "m", "/h", 60_000, 10_000, b"\x00\xff", b"")
    value = GroupMetadataValue("consumer", generation, "range", "m-1", 9, (member,))
    return Record(3, "group_metadata", group_id, 7, group_metadata=value)


def write(root: str, *batches: list[Record]) -> None:
    sink = Sink(root, CoordinatorSettings())
    for number, records in enumerate(batches):
        sink.write([output(0, records)], "test", number)


def test_the_newest_record_of_each_key_loads_its_group(spark, root):
    write(
        root,
        [group("a", 1), offset("a", 0, 10), offset("a", 1, 11), offset("b", 0, 1)],
        [group("a", 2), offset("a", 0, 20), offset("a", 1, None), offset("b", 0, None)],
    )
    events = {row["group_id"]: row["event"] for row in load_events(read(spark, root)).collect()}
    assert set(events) == {"a"}, "a group of tombstones is no group"
    assert events["a"].startswith(FIRST_KEY)
    records, problems = readable_records(decode_control(events["a"][KEY_WIDTH:]).records)
    assert not problems
    loaded = replay("a", records)
    assert loaded is not None
    assert loaded.generation_id == 2
    assert loaded.members["m-1"].metadata("range") == b"\x00\xff"
    assert {p: v.offset for p, v in loaded.offsets["t"].items()} == {0: 20}


def test_rows_of_nobody_and_of_unknown_types_are_left_out_and_named(spark, root, caplog):
    write(root, [offset("a", 0, 10), offset("a", 1, 5, "share_group"), offset(None, 0, 5)])
    assert load_events(read(spark, root)).count() == 1
    with caplog.at_level(logging.WARNING):
        warn_of_others(open_table(root, OFFSETS_TOPIC))
    assert sorted(record.getMessage() for record in caplog.records) == [
        "offsets topic: 1 rows of type 'offset_commit' skipped",
        "offsets topic: 1 rows of type 'share_group' skipped",
    ]


def test_what_was_answered_is_not_in_the_bootstrap_and_what_waits_is(spark, root):
    RequestLog(root).append([heartbeat("r0"), heartbeat("waits")])
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 0)
    bootstrap = prepare_bootstrap(spark, root, f"{root}/bootstrap")
    (row,) = spark.read.format("delta").load(bootstrap.uri).collect()
    assert '"request_id":"waits"' in row["event"]
    assert bootstrap.first_version == 2


def test_a_new_root_has_an_empty_bootstrap(spark, root):
    bootstrap = prepare_bootstrap(spark, root, f"{root}/bootstrap")
    assert spark.read.format("delta").load(bootstrap.uri).count() == 0
    assert bootstrap.first_version == 1


def test_a_checkpoint_of_another_release_is_begun_anew(spark, root, caplog):
    checkpoint, uri = Path(root, "checkpoint"), f"{root}/bootstrap"
    prepare_bootstrap(spark, root, uri)
    assert begun_with(spark, str(checkpoint), uri) is None, "nothing is planned"
    (checkpoint / "offsets").mkdir(parents=True)

    def plan(batch: int, offset: str) -> None:
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")

    plan(9, '{"bootstrap":[1,0],"requests":[7,0]}')
    assert begun_with(spark, str(checkpoint), uri) == (Bootstrap(uri, 0, 0), -1)
    plan(10, '{"sourceVersion":1,"reservoirVersion":5}')
    assert begun_with(spark, str(checkpoint), uri) is None
    assert "another release" in caplog.text
