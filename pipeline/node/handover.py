"""What a change of partitions brings into a node's stream, by way of its bootstrap.

The bootstrap is what the stream reads before the requests. A checkpoint begins with it
(`pipeline.node.bootstrap`); later the groups of a claimed partition and the requests that wait for
them are appended to it, and for those of a partition that is given up an event that unloads them.
The bootstrap's table says under one transaction identifier which claims it holds, so a node that
was killed in between does it again: a group that is loaded twice is the same group.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from pipeline.delta.open import open_appender
from pipeline.node.bootstrap import append_bootstrap, open_engine, prepare_bootstrap
from pipeline.node.load_events import groups_with_records
from pipeline.node.waiting_requests import WaitingRequests
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.event_source import offset_of
from pipeline.stream.packed import FIRST_KEY, PACKED_SCHEMA
from pipeline.tables.store import open_table
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from coordinator.group.partition import PartitionSet

log = logging.getLogger(__name__)

# The transaction of a bootstrap whose version is the epoch of the newest claim that it holds.
CLAIMS = "claims"
# The group of the event that only wakes the stream.
START_GROUP = "__coordinator_start"


def begun_with(
    spark: SparkSession, checkpoint: str, bootstrap_uri: str
) -> tuple[Bootstrap, int] | None:
    """The bootstrap of a checkpoint that has planned a batch, and the epoch of the newest claim in
    it.

    None if there is no such checkpoint: then its first batch may still begin with any bootstrap.
    That is also so for one of another release, with other sources.
    """
    planned = _last_planned(spark, checkpoint)
    if planned is None or not DeltaTable.is_deltatable(bootstrap_uri):
        return None
    if offset_of(planned) is None:
        log.warning("the checkpoint is another release's: groups are brought back from the tables")
        return None
    # The stream that reads it no longer asks for first versions: its checkpoint knows.
    return Bootstrap(bootstrap_uri, 0, 0), open_appender(bootstrap_uri).last_version(CLAIMS)


def begin_afresh(
    spark: SparkSession,
    root: str,
    checkpoint: str,
    bootstrap_uri: str,
    partition_set: PartitionSet | None,
    epoch: int,
) -> Bootstrap:
    """Forget what a streaming checkpoint holds, and write the bootstrap of a new one for the claims
    up to `epoch`.

    `partition_set` None is every partition.
    """
    path, files = _hadoop(spark, checkpoint)
    files.delete(path, True)
    bootstrap = prepare_bootstrap(root, bootstrap_uri, partition_set)
    open_appender(bootstrap_uri).append(None, CLAIMS, epoch)
    return bootstrap


def bring_in(root: str, bootstrap_uri: str, partition_set: PartitionSet, epoch: int) -> None:
    """Append what loads newly claimed partitions: their groups, then the requests that wait."""
    append_bootstrap(root, bootstrap_uri, open_table(root, REQUESTS), partition_set)
    open_appender(bootstrap_uri).append(None, CLAIMS, epoch)


def give_up(root: str, bootstrap_uri: str, partition_set: PartitionSet) -> None:
    """Append what unloads partitions: an event for each group with records or a waiting request.

    Other groups have nobody to be told, and are forgotten by their next timer.
    """
    with open_engine() as engine:
        groups = groups_with_records(engine, root, partition_set.partitions)
        waiting = WaitingRequests(engine, root, open_table(root, REQUESTS)).groups()
    groups.update(filter(partition_set.has_group, waiting))
    _append(bootstrap_uri, ((group, UNLOAD_EVENT) for group in sorted(groups)))


def wake(bootstrap_uri: str) -> None:
    """Append an event that makes the stream run a batch, whatever `requests` has."""
    _append(bootstrap_uri, [(START_GROUP, WAKE_EVENT)])


def _append(bootstrap_uri: str, events: Iterable[tuple[str, str]]) -> None:
    rows = [(group, FIRST_KEY + event) for group, event in events]
    if rows:
        groups, texts = zip(*rows, strict=True)
        open_appender(bootstrap_uri).append(pa.table([groups, texts], schema=PACKED_SCHEMA))


def _last_planned(spark: SparkSession, checkpoint: str) -> str | None:
    """The offset of the last batch that a checkpoint has planned, as its source wrote it."""
    path, files = _hadoop(spark, f"{checkpoint}/offsets")
    if not files.exists(path):
        return None
    batches = [status.getPath() for status in files.listStatus(path)]
    latest = max(
        (batch for batch in batches if batch.getName().isdigit()),
        key=lambda batch: int(batch.getName()),
        default=None,
    )
    if latest is None:
        return None
    stream = files.open(latest)
    try:
        # A version, the batch's metadata, and a line for each source.
        text = spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return str(text).splitlines()[-1]


def _hadoop(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    """A path as Hadoop has it, and the file system it is on."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(uri)
    return path, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
