"""Spark's Delta reads every table of a root, now and in the past, as Python does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from coordinator.authorization import AclBinding
from coordinator.ownership import STARTED
from pipeline.client import GroupMember, RequestClient
from pipeline.delta.checkpoint import clean_log
from pipeline.delta.local_appender import LocalAppender
from pipeline.delta.log_trim import trim_log
from pipeline.delta.table import open_delta
from pipeline.gateway.brokers import Brokers
from pipeline.monitor.as_of import NotKept, commit_times, open_as_of
from pipeline.ownership.decision_log import DecisionLog
from pipeline.tables.acls import add_acls
from pipeline.upkeep.compaction import compact
from pipeline.upkeep.retention import retain
from pipeline.upkeep.topic_retention import retain_topics
from schemas.messages import HeartbeatRequest, RequestEvent
from schemas.records import CoordinatorEvent, Record
from schemas.tables import OFFSETS_TOPIC, TABLES, to_arrow
from tests.golden.record import HERE
from tests.pipeline.offsets_log import upkeep
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.logs import appender, batch, make
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def golden(root: str) -> None:
    """What a coordinator of an earlier release has left."""
    (release,) = [each for each in HERE.iterdir() if each.name[0].isdigit()]
    shutil.copytree(release / "root", root, dirs_exist_ok=True)


def written(root: str) -> None:
    """What a coordinator, a gateway, members and a topic's writers of this release write."""
    topic = make(root)
    for number in range(4):
        appender(topic).append([batch(number % 3, "a", "b", f"c{number}")])
    decisions = DecisionLog(root)
    decisions.decide(decisions.read(), [CoordinatorEvent(1, -1, STARTED, 1)])
    Brokers(root, "127.0.0.1", 9092).stop()
    coordinator = SmallCoordinator(root, {"group.initial.rebalance.delay.ms": 0})
    try:
        with RequestClient(root) as client, GroupMember(root, "g", ["t"], client=client) as member:
            wait_until("a record", lambda: member.poll(1_000))
            member.commit()
            # A body that its api does not have is put aside.
            client.ask(RequestEvent("odd", "g", "join_group", heartbeat=HeartbeatRequest(1, "m")))
    finally:
        coordinator.stop()
    add_acls(root, [AclBinding("TOPIC", "t", "LITERAL", "User:alice", "*", "READ", "ALLOW")])


def tables(root: str) -> list[Path]:
    found = [each.parent for each in sorted(Path(root).rglob("_delta_log"))]
    assert {each.name for each in found} >= set(TABLES)
    return found


# --- what happens to a root -----------------------------------------------------------------------


def pack(root: str) -> None:
    """Compact the offsets topic, of which one segment is still open, and pack the other tables."""
    folder = Path(root) / "offsets_topic"
    newest = max(int(each["segment"]) for each in DeltaTable(folder).partitions())
    record = Record(0, "share_group", "roll", 1, 10**6, topic="x")
    segment = {"segment": pa.array([newest + 1], pa.int64())}
    LocalAppender(folder).append(to_arrow(OFFSETS_TOPIC, [record], segment))
    assert not compact(root, upkeep(), 4_000_000_000_000, force=True).skipped
    now_ms = time.time_ns() // 1_000_000
    for result in (*retain(root, upkeep(), now_ms), *retain_topics(root, upkeep(), now_ms)):
        assert not result.failure, result.line()


def checkpoint(root: str) -> None:
    for folder in tables(root):
        clean_log(open_delta(str(folder)))
        assert (folder / "_delta_log" / "_last_checkpoint").exists()


def trim(root: str) -> None:
    for folder in tables(root):
        trim_log(folder, DeltaTable(folder).version())


def vacuum(root: str) -> None:
    for folder in tables(root):
        DeltaTable(folder).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)


# --- how it is compared ---------------------------------------------------------------------------


class Reader:
    """Reads by Spark and by Python, and counts what both read of the past, and what both refuse."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.past = 0
        self.refused = 0

    def compare(self, root: str, sample: int) -> None:
        for folder in tables(root):
            uri = str(folder)
            self._equal(DeltaTable(uri), self._spark.read.format("delta").load(uri))
            known = commit_times(uri)
            for version, at_ms in known[:: max(1, len(known) // sample)]:
                self._same(uri, partial(DeltaTable, uri, version), f"VERSION AS OF {version}")
                at = datetime.fromtimestamp(at_ms / 1000, UTC)
                clause = f"TIMESTAMP AS OF '{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03}+00:00'"
                self._same(uri, partial(open_as_of, uri, at), clause)

    def _same(self, uri: str, ours: Callable[[], DeltaTable | None], clause: str) -> None:
        asked = f"SELECT * FROM delta.`{uri}` {clause}"
        try:
            table = ours()
            assert table is not None
            table.to_pyarrow_table()
        except (DeltaError, NotKept, OSError):
            with pytest.raises(Exception, match=r"DELTA_|FILE_NOT_EXIST|doesn't exist"):
                self._spark.sql(asked).collect()
            self.refused += 1
            return
        self._equal(table, self._spark.sql(asked))
        self.past += 1

    def _equal(self, table: DeltaTable, theirs: DataFrame) -> None:
        schema = pa.schema(table.schema().to_arrow())
        rows = table.to_pyarrow_table()
        ours = self._spark.createDataFrame(rows.cast(schema) if rows else schema.empty_table())
        assert_df_equality(ours, theirs, transforms=[in_order], ignore_nullable=True)


def in_order(rows: DataFrame) -> DataFrame:
    """The rows in an order of their own; chispa's `ignore_row_order` exchanges them for it."""
    return rows.coalesce(1).sortWithinPartitions(rows.columns)


CHANGES = [pack, checkpoint, trim, vacuum]
# After which changes the tables are read, and how many versions of each, by number and by time.
STAGES = [
    pytest.param([[], CHANGES], 1, id="all-at-once"),
    pytest.param([[], *([each] for each in CHANGES)], 20, marks=pytest.mark.long, id="each"),
]


@pytest.mark.parametrize(("stages", "sample"), STAGES)
@pytest.mark.parametrize("write", [pytest.param(golden, marks=pytest.mark.long), written])
def test_spark_reads_every_table_as_python_does(
    spark_with_delta: SparkSession,
    root: str,
    write: Callable[[str], None],
    stages: list[list[Callable[[str], None]]],
    sample: int,
) -> None:
    write(root)
    # A table's state is put together by 50 tasks otherwise.
    spark_with_delta.conf.set("spark.databricks.delta.snapshotPartitions", 1)
    reader = Reader(spark_with_delta)
    for changes in stages:
        for change in changes:
            change(root)
        reader.compare(root, sample)
    assert reader.past >= 2 * len(TABLES)
    assert reader.refused
