"""Taking over: what a new checkpoint starts from is what the tables say.

A stream that begins without a checkpoint has no groups. So before its first batch a bootstrap is
written, a table of events that the stream reads beside the requests: for every group of the offsets
topic one event that loads it, and every request that no answer was written for. The stream's own
requests begin where the bootstrap ends. So a lost checkpoint loses nothing: no acknowledged commit,
because it is a record; no waiting request, because it has no answer; and nothing is answered twice.

On a local disk DuckDB writes the bootstrap, within a bound of memory, and no JVM is needed;
elsewhere Spark does, in executors. `bootstrap_without_spark` decides.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import functions as F

from coordinator.group.control import PREFIX
from pipeline.delta.table import local_folder, open_delta
from pipeline.errors import Failure
from pipeline.node.load_events import KEY, RECORD, add_files, write_load_events
from pipeline.node.waiting_requests import write_waiting_requests
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.source import FIRST_KEY, KEY_WIDTH, PACKED_SCHEMA, only, pack
from pipeline.tables.store import open_table, table_uri
from schemas.records import GROUP_METADATA, OFFSET_COMMIT
from schemas.tables import OFFSETS_TOPIC, REJECTED_REQUESTS, REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, SparkSession

    from coordinator.group.partition import PartitionSet

log = logging.getLogger(__name__)


def prepare_bootstrap(
    spark: SparkSession, root: str, uri: str, partitions: Collection[int] | None = None
) -> Bootstrap:
    """Write what the tables hold as events to the table at `uri`, replacing what is there.

    `partitions` are the offsets partitions whose groups are loaded, None for all of them; requests
    are not told apart. Must be done before the first batch of a checkpoint, and never after it: a
    batch that is run again reads the same bootstrap.
    """
    return bootstrap_without_spark(root, uri, partitions) or _bootstrap_by_spark(
        spark, root, uri, partitions
    )


def bootstrap_without_spark(
    root: str, uri: str, partitions: Collection[int] | None = None
) -> Bootstrap | None:
    """`prepare_bootstrap` where no Spark is needed; None, and maybe half a bootstrap, where it is.

    It is for a root that is not on a local disk, and for tables that DuckDB cannot read.
    """
    began = time.monotonic()
    requests = open_table(root, REQUESTS)
    first_version = requests.version() + 1
    if _is_empty(root):
        return Bootstrap(uri, _replace_by_none(uri), first_version)
    folder = local_folder(uri)
    if folder is None or local_folder(root) is None:
        return None
    warn_of_others(open_table(root, OFFSETS_TOPIC))
    try:
        files = write_load_events(root, folder, partitions)
        files += write_waiting_requests(root, requests, folder)
    except Failure as error:
        # Strings that are not UTF-8, for one: Spark makes them so.
        log.warning("Spark takes over from the tables, as DuckDB cannot: %s", error)
        return None
    bootstrap = Bootstrap(uri, _replace_by_none(uri), first_version)
    if files:
        add_files(uri, files)
    log.info("took over from the tables in %.1f s", time.monotonic() - began)
    return bootstrap


def _replace_by_none(uri: str) -> int:
    """Leave no events in the bootstrap's table; returns the version that comes next."""
    write_deltalake(uri, PACKED_SCHEMA.empty_table(), mode="overwrite", schema_mode="overwrite")
    return open_delta(uri).version() + 1


def _bootstrap_by_spark(
    spark: SparkSession, root: str, uri: str, partitions: Collection[int] | None
) -> Bootstrap:
    began = time.monotonic()
    version = open_table(root, REQUESTS).version()
    warn_of_others(open_table(root, OFFSETS_TOPIC))
    bootstrap = Bootstrap(uri, _replace_by_none(uri), version + 1)
    append_by_spark(spark, root, uri, version, partitions)
    log.info("took over from the tables by Spark in %.1f s", time.monotonic() - began)
    return bootstrap


def append_by_spark(
    spark: SparkSession,
    root: str,
    uri: str,
    version: int,
    partitions: Collection[int] | None = None,
    partition_set: PartitionSet | None = None,
) -> None:
    """Append to a bootstrap what loads the groups of partitions, then the requests that wait.

    `version` is the version of `requests`. Two commits: what loads a group comes before its
    requests, whatever the batches.
    """
    loads = load_events(read(spark, root), partitions)
    waiting = only(waiting_requests(spark, root, version), partition_set)
    for events in (loads, waiting):
        events.write.format("delta").mode("append").save(uri)


def _is_empty(root: str) -> bool:
    """Whether no coordinator has said anything under this root, nor anybody asked."""
    return all(
        not open_table(root, table).file_uris() for table in (OFFSETS_TOPIC, REQUESTS, RESPONSES)
    )


def read(spark: SparkSession, root: str) -> DataFrame:
    """The offsets topic's rows."""
    return spark.read.format("delta").load(table_uri(root, OFFSETS_TOPIC))


def load_events(records: DataFrame, partitions: Collection[int] | None = None) -> DataFrame:
    """One event per group that loads it from its newest records: columns `group_id`, `event`.

    `partitions` are the offsets partitions whose groups are wanted, None for all of them. Left out
    are groups of tombstones alone; rows that name no group, or have no place in the log, which
    cannot be anybody's; and record types that nobody here knows (`warn_of_others`).
    """
    known = F.col("record_type").isin(OFFSET_COMMIT, GROUP_METADATA)
    readable = known & F.col("group_id").isNotNull() & F.col("log_offset").isNotNull()
    if partitions is not None:
        readable &= F.col("partition").isin(*partitions)
    newest = (
        records.where(readable)
        .groupBy(*KEY)
        .agg(F.max_by(_record(), F.col("log_offset")).alias("record"))
        .where("record.offset_commit is not null or record.group_metadata is not null")
    )
    rows = F.array_join(F.collect_list(F.to_json("record", {"ignoreNullFields": "false"})), ",")
    event = F.concat(F.lit(f'{FIRST_KEY}{PREFIX}:"load","records":['), rows, F.lit("]}"))
    return newest.groupBy("group_id").agg(event.alias("event"))


def _record() -> Column:
    """A row of the offsets topic as a group is loaded from it: times in ms."""
    names = [field.name for field in RECORD]
    timestamp = F.unix_millis("timestamp").alias("timestamp")
    return F.struct(*(timestamp if name == "timestamp" else F.col(name) for name in names))


def warn_of_others(handle: DeltaTable) -> None:
    """Name the rows that `load_events` leaves out; by delta-rs, as a Spark job costs a second."""
    types = f"'{OFFSET_COMMIT}', '{GROUP_METADATA}'"
    readable = f"record_type IN ({types}) AND group_id IS NOT NULL AND log_offset IS NOT NULL"
    query = (
        f"SELECT record_type, count(*) AS n FROM log WHERE ({readable}) IS NOT TRUE "
        "GROUP BY record_type"
    )
    found = pa.table(QueryBuilder().register("log", handle).execute(query).read_all())
    for row in found.to_pylist():
        log.warning("offsets topic: %d rows of type %r skipped", row["n"], row["record_type"])


def waiting_requests(spark: SparkSession, root: str, version: int) -> DataFrame:
    """The requests up to a version of the table that nobody has answered or rejected, packed."""
    requests = (
        spark.read.format("delta").option("versionAsOf", version).load(table_uri(root, REQUESTS))
    )
    answered = spark.read.format("delta").load(table_uri(root, RESPONSES)).select("request_id")
    nobody = F.col("request_id").isNull() | F.col("group_id").isNull()
    waiting = pack(requests.where(~nobody).join(answered, "request_id", "left_anti"))
    rejected = spark.read.format("delta").load(table_uri(root, REJECTED_REQUESTS))
    texts = rejected.select(F.col("event").alias("text"))
    broken = (
        pack(requests.where(nobody))
        .withColumn("text", F.substring("event", KEY_WIDTH + 1, 2**31 - 1))
        .join(texts, "text", "left_anti")
        .drop("text")
    )
    return waiting.unionByName(broken)
