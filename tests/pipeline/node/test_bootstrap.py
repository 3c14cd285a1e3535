"""What a new streaming checkpoint starts from: the groups of the tables, and who still waits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.node.bootstrap import append_bootstrap, prepare_bootstrap
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.event_source import read_events
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.schemas.records import CoordinatorRecord, OffsetCommitValue
from tests.frames import assert_same_rows, frame_of
from tests.pipeline.rows import heartbeat, output

PARTITIONS = 3


def write_groups(root: str, *groups: str) -> None:
    """Commit an offset for each group."""
    value = OffsetCommitValue(7, -1, "", 5)
    records = [
        CoordinatorRecord(partition_for(g, PARTITIONS), "offset_commit", g, 5, None, "t", 0, value)
        for g in groups
    ]
    Sink(root, CoordinatorSettings()).write([output(0, records)], "test", 0)


def events_of(uri: str) -> list[tuple[str, str]]:
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return [(row["group_id"], row["event"]) for row in rows]


def test_what_was_answered_is_not_in_the_bootstrap_and_what_waits_is(root):
    RequestLog(root).append([heartbeat("r0"), heartbeat("waits")])
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 0)
    bootstrap = prepare_bootstrap(root, f"{root}/bootstrap")
    ((group, event),) = events_of(bootstrap.uri)
    assert group == "g"
    assert '"request_id":"waits"' in event
    assert bootstrap.first_version == 2


def test_a_new_root_has_an_empty_bootstrap(root):
    bootstrap = prepare_bootstrap(root, f"{root}/bootstrap")
    assert events_of(bootstrap.uri) == []
    assert bootstrap.first_version == 1


def test_a_bootstrap_replaces_the_one_before(root):
    write_groups(root, "a", "b")
    uri = f"{root}/bootstrap"
    first = prepare_bootstrap(root, uri)
    assert first.version == DeltaTable(uri).version(), "the events are the first that is read"
    once = events_of(uri)
    second = prepare_bootstrap(root, uri)
    assert second.version > first.version
    assert sorted(events_of(uri)) == sorted(once)
    protocol = DeltaTable(uri).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_claimed_partitions_are_appended_their_groups_before_their_requests(root):
    groups = [f"g{n}" for n in range(9)]
    write_groups(root, *groups)
    RequestLog(root).append([heartbeat(f"r-{group}", group) for group in groups])
    uri = f"{root}/bootstrap"
    prepare_bootstrap(root, uri, PartitionSet({0}, PARTITIONS))
    before = events_of(uri)
    append(root, uri, PartitionSet({1, 2}, PARTITIONS))
    mine = {group for group in groups if partition_for(group, PARTITIONS) == 0}
    assert {group for group, _ in before} == mine
    appended = {}
    for group, event in events_of(uri):
        if group not in mine:
            appended.setdefault(group, []).append(event.startswith(FIRST_KEY))
    assert appended.keys() == set(groups) - mine
    assert all(sorted(kinds) == [False, True] for kinds in appended.values())


def append(root: str, uri: str, partition_set: PartitionSet) -> None:
    with ReadAhead(root, CoordinatorSettings()) as ahead:
        ahead.read_on()
        append_bootstrap(ahead, uri, partition_set)


@pytest.fixture
def elsewhere(monkeypatch):
    """Have every table read and written as one that is not on a local disk."""
    for module in ("table_files", "store_files", "table"):
        monkeypatch.setattr(
            f"group_coordinator.pipeline.delta.{module}.local_folder", lambda _: None
        )


def test_elsewhere_than_on_a_local_disk_a_bootstrap_is_the_same(root, elsewhere):
    write_groups(root, "a", "b")
    RequestLog(root).append([heartbeat("r0"), heartbeat("waits")])
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 1)
    bootstrap = prepare_bootstrap(root, f"{root}/bootstrap")
    assert sorted(group for group, _ in events_of(bootstrap.uri)) == ["a", "b", "g"]


@pytest.mark.spark
def test_spark_streams_the_bootstrap_and_what_is_added_to_it(spark, root, tmp_path):
    write_groups(root, "a", "b")
    uri = f"{root}/bootstrap"
    bootstrap = prepare_bootstrap(root, uri, PartitionSet({0, 1, 2}, PARTITIONS))
    seen: list[pa.Table] = []

    def take(rows, _batch_id) -> None:
        each = rows.selectExpr("group_id", r"explode(split(events, '\n')) AS event")
        seen.append(each.toArrow())

    def check() -> None:
        read = frame_of(spark, pa.concat_tables(seen))
        # An array's items, which `split` has made, are never null.
        assert_same_rows(read, DeltaTable(uri).to_pyarrow_table(), ignore_nullable=True)

    query = (
        read_events(spark, root, CoordinatorSettings(), bootstrap, bootstrap.version + 1)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert sorted(group for group, _ in events_of(uri)) == ["a", "b"]
        check()
        claimed = PartitionSet({partition_for("b", PARTITIONS)}, PARTITIONS)
        append(root, uri, claimed)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(group for group, _ in events_of(uri)) == ["a", "b", "b"]
    check()
