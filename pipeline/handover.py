"""What a change of partitions brings into a node's stream, by way of its seed.

The seed is what the stream reads before the requests. A checkpoint begins with it
(`pipeline.recovery`); later the groups of a claimed partition and the requests that wait for them
are appended to it, and for those of a partition that is given up an event that unloads them. The
seed's table says under one transaction identifier which claims it holds, so a node that was killed
in between does it again: a group that is loaded twice is the same group.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from pipeline.commit import open_appender
from pipeline.delta import local_folder
from pipeline.errors import Failure
from pipeline.event_source import offset_of, owns
from pipeline.recovery import Seed, append_by_spark, prepare_seed
from pipeline.seed import add_files, write_load_events
from pipeline.seed_requests import write_waiting_requests
from pipeline.source import FIRST_KEY, SEED_SCHEMA
from pipeline.store import open_table
from schemas.tables import OFFSETS_TOPIC, REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from pipeline.source import Share

log = logging.getLogger(__name__)

# The transaction of a seed whose version is the epoch of the newest claim that it holds.
CLAIMS = "claims"
# The group of the event that only wakes the stream.
START_GROUP = "__coordinator_start"


def begun_with(spark: SparkSession, checkpoint: str, seed_uri: str) -> tuple[Seed, int] | None:
    """The seed of a checkpoint that has planned a batch, and the epoch of the newest claim in it.

    None if there is no such checkpoint: then its first batch may still begin with any seed. That is
    also so for one of another release, with other sources.
    """
    planned = _last_planned(spark, checkpoint)
    if planned is None or not DeltaTable.is_deltatable(seed_uri):
        return None
    if offset_of(planned) is None:
        log.warning("the checkpoint is another release's: groups are brought back from the tables")
        return None
    # The stream that reads it no longer asks for first versions: its checkpoint knows.
    return Seed(seed_uri, 0, 0), open_appender(seed_uri).last_version(CLAIMS)


def begin_afresh(
    spark: SparkSession, root: str, checkpoint: str, seed_uri: str, share: Share | None, epoch: int
) -> Seed:
    """Forget what a checkpoint holds, and write the seed of a new one for the claims up to `epoch`.

    `share` None is every partition.
    """
    path, files = _hadoop(spark, checkpoint)
    files.delete(path, True)
    partitions = None if share is None else sorted(share.partitions)
    seed = prepare_seed(spark, root, seed_uri, partitions)
    open_appender(seed_uri).append(None, CLAIMS, epoch)
    return seed


def bring_in(spark: SparkSession, root: str, seed_uri: str, share: Share, epoch: int) -> None:
    """Append what loads newly claimed partitions: their groups, then the requests that wait."""
    began = time.monotonic()
    requests = open_table(root, REQUESTS)
    if not _bring_in_without_spark(root, seed_uri, requests, share):
        append_by_spark(spark, root, seed_uri, requests.version(), sorted(share.partitions), share)
    open_appender(seed_uri).append(None, CLAIMS, epoch)
    seconds = time.monotonic() - began
    log.info("loaded %d partitions in %.1f s", len(share.partitions), seconds)


def _bring_in_without_spark(root: str, seed_uri: str, requests: DeltaTable, share: Share) -> bool:
    """Whether it was done; see `pipeline.recovery.seed_without_spark`."""
    folder = local_folder(seed_uri)
    if folder is None or local_folder(root) is None:
        return False
    try:
        files = write_load_events(root, folder, share.partitions)
        files += write_waiting_requests(root, requests, folder, lambda group: owns(share, group))
    except Failure as error:
        log.warning("Spark loads the partitions, as DuckDB cannot: %s", error)
        return False
    if files:
        add_files(seed_uri, files)
    return True


def give_up(root: str, seed_uri: str, share: Share) -> None:
    """Append what unloads partitions: an event for each group with records or a waiting request.

    Other groups have nobody to be told, and are forgotten by their next timer.
    """
    groups = _groups_with_records(root, share) | _waiting_groups(root, share)
    _append(seed_uri, ((group, UNLOAD_EVENT) for group in sorted(groups)))


def wake(seed_uri: str) -> None:
    """Append an event that makes the stream run a batch, whatever `requests` has."""
    _append(seed_uri, [(START_GROUP, WAKE_EVENT)])


def _append(seed_uri: str, events: Iterable[tuple[str, str]]) -> None:
    rows = [(group, FIRST_KEY + event) for group, event in events]
    if rows:
        groups, texts = zip(*rows, strict=True)
        open_appender(seed_uri).append(pa.table([groups, texts], schema=SEED_SCHEMA))


def _groups_with_records(root: str, share: Share) -> set[str]:
    numbers = ", ".join(map(str, sorted(share.partitions)))
    query = (
        f"SELECT DISTINCT group_id FROM log WHERE partition IN ({numbers}) AND group_id IS NOT NULL"
    )
    handle = open_table(root, OFFSETS_TOPIC)
    found = pa.table(QueryBuilder().register("log", handle).execute(query).read_all())
    return set(found.column("group_id").to_pylist())


def _waiting_groups(root: str, share: Share) -> set[str]:
    """The groups of the partitions in which somebody may wait for an answer."""
    query = (
        "SELECT DISTINCT group_id FROM requests WHERE group_id IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM responses WHERE responses.request_id = requests.request_id)"
    )
    engine = QueryBuilder()
    for table in (REQUESTS, RESPONSES):
        engine = engine.register(table.name, open_table(root, table))
    found = pa.table(engine.execute(query).read_all())
    return {group for group in found.column("group_id").to_pylist() if owns(share, group)}


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
