"""Spark's Delta reads every table of a root, now and in the past, as Python does.

The tables are written by code of ours and by delta-rs; delta-spark shares no code with either.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from chispa.schema_comparer import assert_schema_equality
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline.client import RequestClient
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.table import newest_version, open_delta
from group_coordinator.pipeline.gateway.brokers import Brokers
from group_coordinator.pipeline.monitor.as_of import EPOCH, NotKept, commit_times, open_as_of
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.session.driver_jvm import jvm
from group_coordinator.pipeline.settings import Settings, load_settings
from group_coordinator.pipeline.stream.spark_engine import SparkEngine
from group_coordinator.pipeline.tables.acl_table import add_acls, remove_acls
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.pipeline.topics import create_table_topic
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics
from group_coordinator.schemas.acls import AclBinding, AclFilter
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.records import CoordinatorRecord
from group_coordinator.schemas.tables import OFFSETS_TOPIC, ON_DEMAND, TABLES, to_arrow
from tests.frames import assert_same_rows, frame_of
from tests.golden.record import HERE, releases
from tests.golden.write import make_groups
from tests.pipeline.offsets_log import upkeep
from tests.pipeline.rows import heartbeat
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(900)]

# Whether Spark reads after every step, or before all and after all of them.
EVERY_STEP = [False, pytest.param(True, marks=pytest.mark.long)]
# The oldest release differs most from this one, whose own tables are read as well.
RELEASES = [
    release if number == 0 else pytest.param(release, marks=pytest.mark.long)
    for number, release in enumerate(releases())
]

WAIT_S = 120.0
# Past every tombstone's retention, ms.
CENTURIES_MS = 10_000_000_000_000


# --- the roots ------------------------------------------------------------------------------------


def golden_root(folder: Path, release: str) -> str:
    """A copy of a golden root, brought up to date, whose commits have times in their order."""
    root = folder / "root"
    shutil.copytree(HERE / release / "root", root)
    ensure_tables(str(root))
    # Spark refuses what is older than `delta.deletedFileRetentionDuration`, though it is there.
    begun_ms = clock_ms() - 600_000
    for table in tables(folder):
        for number, commit in enumerate(sorted((table / "_delta_log").glob("*.json"))):
            at_ns = (begun_ms + number * 1000) * 1_000_000
            os.utime(commit, ns=(at_ns, at_ns))
    return str(root)


def written_root(spark: SparkSession, folder: Path) -> str:
    """A root with every kind of table, which a coordinator on Spark has just written."""
    root = str(folder / "root")
    group = GroupCoordinatorConfig(
        offsets_topic_num_partitions=4, group_initial_rebalance_delay_ms=0
    )
    settings = Settings(coordinator=load_settings().coordinator, group=group)
    node = start(SparkEngine(spark, root, settings.coordinator), root, settings)
    try:
        node.await_ready(WAIT_S)
        with RequestClient(root) as client:
            groups = make_groups(root, client)
            client.ask(RequestEvent("no api", "stable", "no_such_api"))
            for each in groups.waiting:
                each.cancel()
        node.stop()
    finally:
        node.abandon()
    write_topics(root, str(folder / "user's table"))
    acl = AclBinding("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")
    add_acls(root, [acl])
    remove_acls(root, [AclFilter()])
    Brokers(root, {"PLAINTEXT": ("localhost", 9092)}).stop()
    return root


def write_topics(root: str, users: str) -> None:
    """A topic with a table of its own, and a user's table that is a topic, both with records."""
    topic = make(root, 2)
    with_headers = batch(1, "a", "b")
    with_headers.headers = [(("page", b"/cart"),), ()]
    writer = appender(topic)
    writer.append([with_headers])
    for value in "cdefghijkl":
        writer.append([batch(0, value)])
    append(users, range(20))
    create_table_topic(root, "users", 3, users, key="id")
    opened(root)


def tables(folder: Path) -> list[Path]:
    return sorted(log.parent for log in folder.rglob("_delta_log"))


# --- what is done to them -------------------------------------------------------------------------


def keep_up(root: str) -> None:
    """Compact, pack and clean up as a coordinator does, and go on writing."""
    topic = table_uri(root, OFFSETS_TOPIC)
    newest = max(int(each["segment"]) for each in DeltaTable(topic).partitions())
    record = CoordinatorRecord(0, "share_group", "in a new segment", 1, 10**6, topic="x")
    segment = pa.array([newest + 1], pa.int64())
    rows = to_arrow(OFFSETS_TOPIC, [record], {"segment": segment})
    Appender(Path(topic)).append(rows)
    assert compact(root, upkeep(), CENTURIES_MS, force=True).skipped is None
    now_ms = clock_ms()
    results = [*retain(root, upkeep(), now_ms), *retain_topics(root, upkeep(), now_ms)]
    assert [each.failure for each in results if each.failure] == []
    assert any(each.files_after < each.files_before for each in results), "something was packed"
    RequestLog(root).append([heartbeat("after upkeep")])


def trim(folder: Path) -> int:
    """Have each log begin with a Delta checkpoint; returns how many have no version 0 any more."""
    trimmed = 0
    for table in tables(folder):
        clean_log(open_delta(str(table)))
        newest = newest_version(str(table))
        if newest:
            assert trim_log(str(table), newest, grace_s=0.0)
            trimmed += 1
    for root in folder.glob("root"):
        RequestLog(str(root)).append([heartbeat("after the trim")])
    return trimmed


def vacuum(folder: Path) -> None:
    for table in tables(folder):
        options = {"retention_hours": 0, "enforce_retention_duration": False, "full": True}
        DeltaTable(str(table)).vacuum(dry_run=False, **options)


# --- how they are read ----------------------------------------------------------------------------


class Read(NamedTuple):
    """A read of a table: Spark's clause, and what Python has read by the same one."""

    clause: str
    rows: pa.Table


def clauses(table: Path, most: int) -> Iterator[tuple[str, datetime | int | None]]:
    """How a table is to be read, and what that is for Python; `most` reads of its past of a kind.

    Of version 0, too, which is not kept for ever.
    """
    yield "", None
    yield "VERSION AS OF 0", 0
    known = commit_times(str(table))
    past = known[-1::-1][1:] or known
    chosen = past[:: max(1, len(past) // most)]
    for version, at_ms in chosen:
        yield f"VERSION AS OF {version}", version
        at = EPOCH + timedelta(milliseconds=at_ms)
        yield f"TIMESTAMP AS OF '{at.isoformat(' ', 'milliseconds')}'", at


def check(spark: SparkSession, folder: Path, most: int) -> int:
    """Spark reads all tables as Python does; returns how many reads both have refused."""
    # As a session that has read none of them.
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
    refused = 0
    for table in tables(folder):
        reads = []
        # Some have no more versions than the first.
        for clause, as_of in dict(clauses(table, most)).items():
            try:
                reads.append(Read(clause, rows_of(str(table), as_of)))
            except (NotKept, FileNotFoundError):
                refused += 1
                with pytest.raises(PySparkException):
                    spark.sql(f"SELECT * FROM {named(table)} {clause}").collect()
        for _, alike in itertools.groupby(reads, key=lambda each: each.rows.schema):
            compare(spark, table, list(alike))
    return refused


def rows_of(uri: str, as_of: datetime | int | None) -> pa.Table:
    handle = open_delta(uri) if as_of is None else open_as_of(uri, as_of)
    assert handle is not None
    return handle.to_pyarrow_table()


def compare(spark: SparkSession, table: Path, reads: Sequence[Read]) -> None:
    """Spark has the same of all these reads, which are compared in one query, being many."""
    print(f"{table}: {[each.clause for each in reads]}")
    found, expected = [], []
    for number, (clause, rows) in enumerate(reads):
        frame = spark.sql(f"SELECT {number} AS read, * FROM {named(table)} {clause}")
        column = pa.array([number] * rows.num_rows, pa.int32())
        rows = rows.add_column(0, pa.field("read", pa.int32(), nullable=False), column)
        # A union would have made them alike.
        assert_schema_equality(frame.schema, frame_of(spark, rows).schema)
        found.append(frame)
        expected.append(rows)
    assert_same_rows(reduce(DataFrame.union, found), pa.concat_tables(expected))


def named(table: Path) -> str:
    return f"delta.`{table}`"


# --- the tests ------------------------------------------------------------------------------------


def check_through_upkeep(
    spark: SparkSession, folder: Path, root: str, every_step: bool, most: int = 1
) -> None:
    assert check(spark, folder, most) == 0, "nothing was removed yet"
    keep_up(root)
    if every_step:
        check(spark, folder, most)
    trimmed = trim(folder)
    assert trimmed > len(TABLES)
    if every_step:
        assert check(spark, folder, most) >= trimmed, "they have no version 0"
    vacuum(folder)
    assert check(spark, folder, most) >= trimmed


@pytest.mark.parametrize("every_step", EVERY_STEP)
@pytest.mark.parametrize("release", RELEASES)
def test_spark_reads_a_golden_root(
    light_spark: SparkSession, release: str, every_step: bool, tmp_path: Path
) -> None:
    root = golden_root(tmp_path, release)
    check_through_upkeep(light_spark, tmp_path, root, every_step)


@pytest.mark.parametrize("every_step", EVERY_STEP)
def test_spark_reads_what_a_coordinator_has_written(
    spark_with_delta: SparkSession, light_spark: SparkSession, every_step: bool, tmp_path: Path
) -> None:
    root = written_root(spark_with_delta, tmp_path)
    names = {table.name for table in tables(tmp_path)}
    assert {table.name for table in (*TABLES.values(), *ON_DEMAND)} <= names
    check_through_upkeep(light_spark, tmp_path, root, every_step)
