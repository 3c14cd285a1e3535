"""Retention and packing of the topics with separate tables, after Kafka's log retention.

Only whole files are removed, the oldest of a partition first, so the log start offset rises and no
file is rewritten. A file is removed if one of these holds, as for a segment in Kafka:

* Its newest record is older than `retention.ms`, by the record's timestamp.
* The partition's other files still have at least `retention.bytes`.

A file with a batch of an idempotent producer is kept for at least ten minutes, because without it a
resent batch would be written twice.

Adjacent small files are packed into one, with the records in offset order. It spans at most an
eighth of the retention, and at most a day; a record is removed late by at most this time. Readers
follow the table's log to the packed file, which keeps the producer state of its batches, except of
files older than a day (producer.id.expiration.ms).

Source: Apache Kafka, UnifiedLog.deleteOldSegments, LogConfig.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from group_coordinator.pipeline.delta import (
    ROW_GROUP_BYTES,
    STORE_FAILS,
    TableFiles,
    check_clock,
    clean_log,
    data_files,
    local_folder,
    open_delta,
    open_files,
)
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS
from group_coordinator.pipeline.topics import (
    PartitionSegments,
    Segment,
    Segments,
    TopicConfig,
    decode_config,
    encode_segment_stats,
    log_topics,
    plain_rows,
    retained_batches,
)
from group_coordinator.pipeline.upkeep.retention import (
    LEAST_FILES,
    MOST_FILES,
    PACKED_BYTES,
    RetentionResult,
    vacuum,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from group_coordinator.pipeline.delta import DataFile
    from group_coordinator.pipeline.settings import UpkeepSettings
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# A packed file has at most 1/_SHARE of a topic's retention, in time and in bytes.
_SHARE = 8
_LEAST_SPAN_MS = 60_000
_LEAST_PACKED_BYTES = 1 << 20
_PRODUCER_EXPIRATION_MS = DAY_MS
# Twice the longest default time for which a client resends a batch, ms: librdkafka's
# message.timeout.ms.
SENT_AGAIN_MS = 600_000


def retain_topics(
    root: str,
    settings: UpkeepSettings,
    now_ms: int,
    say: Callable[[str], None] = log.info,
    thorough: bool = True,
) -> list[RetentionResult]:
    """Remove and pack files of every topic with a separate table.

    A failure of one topic does not stop the run. With `thorough`, unused files, old log files and
    the tables of deleted topics are deleted too; without it, a topic has a result only if files are
    removed or packed. A run that is killed can be repeated. `now_ms` is compared with the records'
    timestamps. `say` receives a text before each topic; it may raise to stop the run.
    """
    in_force, dead = log_topics(root)
    results = []
    for topic in in_force:
        say(f"retention: topic {topic.topic}")
        try:
            done = _retain_topic(topic, settings, now_ms, thorough)
        except STORE_FAILS as error:
            done = RetentionResult(topic.topic, failure=first_line(error))
        if done is not None:
            results.append(done)
    for topic, since in dead:
        # A topic's table is created before the topic. Also, an appender that was suspended since
        # the deletion must still find the commit that records it.
        if thorough and since < now_ms - HOUR_MS:
            try:
                _delete(topic)
            except OSError as error:
                results.append(RetentionResult(topic.topic, failure=first_line(error)))
    return results


def _retain_topic(
    topic: TopicTable, settings: UpkeepSettings, now_ms: int, thorough: bool
) -> RetentionResult | None:
    started = time.monotonic()
    config = decode_config(topic.config or "{}")
    segments = Segments(topic.table, topic.table_id)
    segments.poll()
    due: list[DataFile] = []
    runs: list[list[Segment]] = []
    for partition in segments.partitions().values():
        gone = expired(partition, config, now_ms)
        due += [segment.file for segment in gone]
        runs += packs(partition.segments[len(gone) :], config)
    if not (due or runs or thorough):
        return None
    if local_folder(topic.table) is None:
        check_clock(topic.table)
    handle = open_delta(topic.table)
    before = data_files(handle)
    with tempfile.TemporaryDirectory(prefix="retention-") as scratch:
        files = TableFiles(handle, Path(scratch))
        # Another node's upkeep may have removed the files since they were listed.
        if due and not files.gone(due):
            limits = f"retention.ms={config.retention_ms}, retention.bytes={config.retention_bytes}"
            files.rewrite(due, [], predicate=f"older than {limits} allow")
        for run in runs:
            if not files.gone([segment.file for segment in run]):
                _pack(files, run, now_ms)
    if thorough:
        vacuum(handle, topic.topic, settings.vacuum_retention_hours)
        clean_log(handle)
    return RetentionResult.of(topic.topic, before, data_files(handle), started)


def expired(partition: PartitionSegments, config: TopicConfig, now_ms: int) -> list[Segment]:
    """Return the oldest segments of a partition that exceed its topic's retention."""
    found: list[Segment] = []
    left = sum(segment.file.size for segment in partition.segments)
    for segment in partition.segments:
        limit = config.retention_ms
        is_old = limit >= 0 and segment.max_timestamp < now_ms - limit
        most = config.retention_bytes
        is_over = most >= 0 and left - segment.file.size >= most
        # A resent batch is recognised as a duplicate only while its file exists.
        is_known = bool(segment.batches) and segment.file.modified_ms > now_ms - SENT_AGAIN_MS
        if is_known or not (is_old or is_over):
            break
        found.append(segment)
        left -= segment.file.size
    return found


def packs(segments: Sequence[Segment], config: TopicConfig) -> Iterator[list[Segment]]:
    """Yield the runs of small segments to pack: adjacent, and within one span of time."""
    span_ms = DAY_MS
    if config.retention_ms >= 0:
        span_ms = min(DAY_MS, max(config.retention_ms // _SHARE, _LEAST_SPAN_MS))
    most = PACKED_BYTES
    if config.retention_bytes >= 0:
        most = min(most, max(config.retention_bytes // _SHARE, _LEAST_PACKED_BYTES))
    run: list[Segment] = []
    size = 0
    for segment in segments:
        fits = (
            bool(run)
            and segment.base >= run[-1].end
            and segment.max_timestamp // span_ms == run[-1].max_timestamp // span_ms
            and size + segment.file.size <= most
            and len(run) < MOST_FILES
        )
        is_small = segment.file.size < most // 2
        if not (fits and is_small):
            yield from _worth_while(run)
            run, size = [], 0
        if is_small:
            run.append(segment)
            size += segment.file.size
    yield from _worth_while(run)


def _worth_while(run: list[Segment]) -> Iterator[list[Segment]]:
    """Yield the run without leading files that are larger than all following files together.

    So a packed file is packed again only once the newer files have its size. Yields nothing for
    fewer than `LEAST_FILES` files.
    """
    rest = sum(segment.file.size for segment in run)
    for place, segment in enumerate(run):
        rest -= segment.file.size
        if segment.file.size <= rest:
            run = run[place:]
            break
    if len(run) >= LEAST_FILES:
        yield run


def _pack(files: TableFiles, run: Sequence[Segment], now_ms: int) -> None:
    """Replace the segments by one file, with one row group at a time in memory."""
    partition = run[0].file.partition
    path, target = files.new_file(partition)
    records = 0
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.Table] = []

    def flush() -> None:
        nonlocal writer
        rows = pa.concat_tables(waiting)
        if writer is None:
            writer = pq.ParquetWriter(target, rows.schema, compression="zstd", store_schema=False)
        writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        waiting.clear()

    try:
        for segment in run:
            rows = plain_rows(pq.read_table(files.local(segment.file), partitioning=None))
            records += rows.num_rows
            waiting.append(rows.sort_by("offset"))
            if sum(each.nbytes for each in waiting) >= ROW_GROUP_BYTES:
                flush()
        if waiting:
            flush()
    finally:
        if writer is not None:
            writer.close()
    newest_ms = max(segment.file.modified_ms for segment in run)
    packed = files.written(path, records, partition, newest_ms)
    if packed is None:
        return
    recent = now_ms - _PRODUCER_EXPIRATION_MS
    batches = retained_batches(
        batch for segment in run if segment.file.modified_ms >= recent for batch in segment.batches
    )
    bounds = (
        run[0].base,
        run[-1].end,
        min(segment.min_timestamp for segment in run),
        max(segment.max_timestamp for segment in run),
    )
    packed = structs.replace(packed, stats=encode_segment_stats(records, bounds, batches))
    files.rewrite([segment.file for segment in run], [packed], data_change=False)


def _delete(topic: TopicTable) -> None:
    folder = local_folder(topic.table)
    if folder is not None:
        if folder.exists():
            shutil.rmtree(folder)
            log.info("topic %s was deleted: so is %s", topic.topic, folder)
        return
    files = open_files(topic.table)
    files.delete_dir_contents("", missing_dir_ok=True, accept_root_dir=True)
