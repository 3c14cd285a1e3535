"""Spark answers every view with the rows, types and columns that DuckDB answers with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.monitor import catalog as catalog_module
from group_coordinator.pipeline.monitor.as_of import commit_times
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.spark import register_views, views
from group_coordinator.pipeline.tables.acl_table import add_acls
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.pipeline.topics import log_topics
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from group_coordinator.schemas.rows import SQL_NAMES
from group_coordinator.schemas.tables import (
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REQUESTS,
    TOPIC_TABLES,
    TOPICS,
    Table,
    to_arrow,
    to_requests,
)
from tests.frames import assert_alike, light_session
from tests.pipeline.offsets_log import Log, commit, stored
from tests.pipeline.spark.whole_root import make_whole_root
from tests.pipeline.tables.earlier import create, earlier, in_columns
from tests.pipeline.topics.logs import appender, batch, make
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark]

# Where a day may have 23 hours.
_ZONE = "America/New_York"


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkSession, Catalog]]:
    """A session with the views of a root under the prefix `in_`, and the catalogue of the root."""
    root, now = make_whole_root(tmp_path_factory.mktemp("with a blank"))
    session = light_session(spark)
    session.conf.set("spark.sql.session.timeZone", _ZONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_module, "clock_ms", lambda: now)
        patch.setattr(views, "NOW", f"timestamp_millis({now})")
        names = register_views(session, root, "in_")
        catalog = Catalog(root)
        assert names == [f"in_{name}" for name in catalog.names()]
        yield session, catalog
        catalog.close()


# Spark takes seconds for a view, and beside other work a minute for the largest.
_PARTS = 6


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_view_is_answered_alike(whole: tuple[SparkSession, Catalog], part: int) -> None:
    session, catalog = whole
    moments = ["TIMESTAMP '1970-01-01 00:00:01.005+00'", "TIMESTAMP '2026-01-01 00:00:00+00'"]
    asked = [*catalog.names(), *COMPUTED, *(f"offsets_as_of({each})" for each in moments)]
    asked.append("verdicts_over(INTERVAL 90 MINUTE)")
    empty = []
    for source in asked[part::_PARTS]:
        told = catalog.arrow(f"FROM {source}")
        try:
            assert_alike(session.sql(f"SELECT * FROM in_{source}"), told)
        except Exception as error:
            raise AssertionError(f"{source}: {error}") from error
        if not told.num_rows:
            empty.append(source)
    assert empty == []


def test_spark_reads_every_column_by_its_name_without_quotes(
    light_spark: SparkSession, tmp_path: Path
) -> None:
    """Also if it enforces the reserved words of the SQL standard."""
    session, root = light_spark, str(tmp_path)
    # Spark knows the columns of the other tables without reading a log.
    ensure_table(root, GROUP_EVENTS)
    names = register_views(session, root, "of_")
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    for name in names:
        columns = session.table(name).columns
        named = ", ".join(each for each in columns if each not in SQL_NAMES)
        session.sql(f"SELECT {named} FROM {name} LIMIT 0")


def test_with_a_time_all_tables_are_what_they_were_and_without_it_what_they_are(
    light_spark: SparkSession, root: str
) -> None:
    session = light_spark
    topic = make(root)
    log, log_appender = Log(root), appender(topic)
    log_appender.append([batch(0, "a", "b")])
    log.append(commit("g", 1, 1_000))
    # A commit's time is its file's, to the ms.
    moment = max(at for table in _read_by_lag(root) for _, at in commit_times(table)) + 1
    wait_until("a ms has passed", lambda: clock_ms() > moment)
    log_appender.append([batch(0, "c")])
    log.append(commit("g", 2, 2_000))
    add_acls(root, [AclBinding("GROUP", "g", "LITERAL", "User:a", "*", "READ", "ALLOW")])
    as_of = datetime.fromtimestamp(moment / 1000, UTC)
    wanted = ["lag", "acls"]
    assert "then_lag" in register_views(session, root, "then_", as_of, wanted)
    past = Catalog(root, as_of)
    for view in wanted:
        assert_alike(session.table(f"then_{view}"), past.arrow(f"FROM {view}"))
    asked = "SELECT committed_offset, log_end_offset, lag FROM {}_lag"
    assert session.sql(asked.format("then")).collect() == [(1, 2, 1)]
    register_views(session, root, "now_", names=["lag"])
    assert session.sql(asked.format("now")).collect() == [(2, 3, 1)]
    log_appender.append([batch(0, "d")])
    log.append(commit("g", 4, 3_000))
    assert session.sql(asked.format("now")).collect() == [(4, 4, 0)]
    assert session.sql(asked.format("then")).collect() == [(1, 2, 1)]


def test_fields_that_an_older_table_lacks_within_its_structs_are_null(
    light_spark: SparkSession, root: str
) -> None:
    session = light_spark
    records = [commit("g", 7, 1_000), stored("g", 1, 1_000)]
    segment = {"segment": pa.array([0, 0], pa.int64()), "log_offset": pa.array([0, 1], pa.int64())}
    written = to_arrow(OFFSETS_TOPIC, records, segment)
    fields = ("offset_commit.leader_epoch", "group_metadata.members.group_instance_id")
    _make_earlier(root, OFFSETS_TOPIC, written, *fields)
    asked = OffsetCommitRequest(topics=(OffsetCommitTopic("t", (OffsetCommitPartition(0, 7),)),))
    requests = to_requests([RequestEvent("r", "g", "offset_commit", offset_commit=asked)])
    _make_earlier(root, REQUESTS, requests, "offset_commit.topics.partitions.committed_metadata")
    wanted = ["offsets_topic", "committed_offsets", "group_members", "requests"]
    register_views(session, root, names=wanted)
    catalog = Catalog(root)
    for name in wanted:
        told = catalog.arrow(f"FROM {name}")
        assert told.num_rows
        assert_alike(session.table(name), told)


def _make_earlier(root: str, table: Table, rows: pa.Table, *lacking: str) -> None:
    """Make the table, in place of that of this release, without some fields."""
    known = earlier(table, *lacking)
    shutil.rmtree(table_uri(root, table))
    create(root, table, known)
    Appender(table_uri(root, table)).append(in_columns(rows, known))


def _read_by_lag(root: str) -> list[str]:
    tables = (OFFSETS_TOPIC, TOPICS, TOPIC_TABLES)
    (definition,) = log_topics(root)[0]
    return [*(table_uri(root, each) for each in tables), definition.table]
