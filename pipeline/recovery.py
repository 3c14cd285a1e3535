"""Taking over: what a new checkpoint starts from is what the tables say.

A stream that begins without a checkpoint has no groups. So before its first batch a seed is
written, a table of events that the stream reads beside the requests: for every group of the offsets
topic one event that loads it, and every request that no answer was written for. The stream's own
requests begin where the seed ends. So a lost checkpoint loses nothing: no acknowledged commit,
because it is a record; no waiting request, because it has no answer; and nothing is answered twice.

All of it is done by Spark, in executors: the log may be larger than the driver's memory.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from msgspec import Struct
from pyspark.sql import functions as F

from coordinator.group.control import PREFIX
from pipeline.source import EVENT_COLUMNS, FIRST_KEY, KEY_WIDTH, pack
from pipeline.store import open_table, table_uri
from schemas.records import GROUP_METADATA, OFFSET_COMMIT
from schemas.tables import OFFSETS_TOPIC, REJECTED_REQUESTS, REQUESTS, RESPONSES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

_SEED_SCHEMA = pa.schema([(name, pa.string()) for name in EVENT_COLUMNS])
_KEY = ("record_type", "group_id", "topic", "topic_partition")


class Seed(Struct, frozen=True):
    """Where the stream's events come from: the seed's table, and the first version of `requests`
    that the seed does not cover.
    """

    uri: str
    first_version: int


def prepare_seed(spark: SparkSession, root: str, uri: str) -> Seed:
    """Write what the tables hold as events to the table at `uri`, replacing what is there.

    Must be done before the first batch of a checkpoint, and never after it: a batch that is run
    again reads the same seed.
    """
    began = time.monotonic()
    version = open_table(root, REQUESTS).version()
    if _is_empty(root):
        write_deltalake(uri, _SEED_SCHEMA.empty_table(), mode="overwrite")
        return Seed(uri, version + 1)
    warn_of_others(open_table(root, OFFSETS_TOPIC))
    loads = load_events(read(spark, root))
    waiting = waiting_requests(spark, root, version)
    (
        loads.unionByName(waiting)
        .write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .save(uri)
    )
    log.info("took over from the tables in %.1f s", time.monotonic() - began)
    return Seed(uri, version + 1)


def _is_empty(root: str) -> bool:
    """Whether no coordinator has said anything under this root, nor anybody asked."""
    return all(
        not open_table(root, table).file_uris() for table in (OFFSETS_TOPIC, REQUESTS, RESPONSES)
    )


def read(spark: SparkSession, root: str) -> DataFrame:
    """The offsets topic's rows."""
    return spark.read.format("delta").load(table_uri(root, OFFSETS_TOPIC))


def load_events(records: DataFrame) -> DataFrame:
    """One event per group that loads it from its newest records: columns `group_id`, `event`.

    Rows that name no group, or have no place in the log, cannot be anybody's; they are left out, as
    are record types that nobody here knows (`warn_of_others`).
    """
    known = F.col("record_type").isin(OFFSET_COMMIT, GROUP_METADATA)
    readable = known & F.col("group_id").isNotNull() & F.col("log_offset").isNotNull()
    newest = (
        records.where(readable)
        .groupBy(*_KEY)
        .agg(F.max_by(_record(), F.col("log_offset")).alias("record"))
        .where("record.offset_commit is not null or record.group_metadata is not null")
    )
    rows = F.array_join(F.collect_list(F.to_json("record", {"ignoreNullFields": "false"})), ",")
    event = F.concat(F.lit(f'{FIRST_KEY}{PREFIX}:"load","records":['), rows, F.lit("]}"))
    return newest.groupBy("group_id").agg(event.alias("event"))


def _record() -> Column:
    """A row of the offsets topic as the Struct has it: times in ms, no segment."""
    names = [field.name for field in OFFSETS_TOPIC.schema if field.name != "segment"]
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


def existing_seed(uri: str) -> Seed | None:
    """The seed that a checkpoint began with; None if there is none.

    The stream that reads it no longer asks for a first version: its checkpoint knows.
    """
    return Seed(uri, 0) if DeltaTable.is_deltatable(uri) else None
