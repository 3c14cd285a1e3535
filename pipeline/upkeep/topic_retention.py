"""Retention of topics that have tables of their own, after Kafka's log retention; and packing.

Only whole files go, the oldest of a partition first, so that the log start rises and nothing is
rewritten: a file once its newest record is past `retention.ms` by the record's own timestamp, and
while the others still have `retention.bytes`. Kafka deletes its segments by the same two rules.
A file in which an idempotent producer's batch is stays ten minutes at least: until then the
producer may send the batch again, and would have it written twice.

Small files that follow each other become one, whose records are in the order of their offsets. A
packed file spans at most an eighth of the retention, and at most a day: a record is removed at most
that much late. Readers follow the table's log to the packed file. The state of its batches'
producers is kept in it, unless their records were written more than a day ago
(producer.id.expiration.ms).

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

from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.data_files import ROW_GROUP_BYTES, data_files
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.store_check import check_clock
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import local_folder, open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.topics import (
    PartitionSegments,
    Segment,
    Segments,
    TopicConfig,
    decode_config,
    encode_segment_stats,
    log_topics,
    merged,
    plain_rows,
)
from group_coordinator.pipeline.upkeep.retention import (
    LEAST_FILES,
    MOST_FILES,
    PACKED_BYTES,
    RetentionResult,
)
from group_coordinator.pipeline.upkeep.vacuum import vacuum
from group_coordinator.pipeline.upkeep_settings import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from group_coordinator.pipeline.delta.data_files import DataFile
    from group_coordinator.pipeline.upkeep_settings import UpkeepSettings
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# A packed file has at most this share of what a topic keeps.
_SHARE = 8
_LEAST_SPAN_MS = 60_000
_LEAST_PACKED_BYTES = 1 << 20
_PRODUCER_EXPIRATION_MS = DAY_MS
# Twice the longest that a client sends a batch again by default: librdkafka's message.timeout.ms.
SENT_AGAIN_MS = 600_000


def retain_topics(
    root: str,
    settings: UpkeepSettings,
    now_ms: int,
    say: Callable[[str], None] = log.info,
    thorough: bool = True,
) -> list[RetentionResult]:
    """Remove and pack in every topic with a table of its own; one failure does not stop the others.

    `thorough`: unused files and old log files are deleted, too, and the tables of topics that were
    deleted. Otherwise a topic without anything to remove or to pack has no result. Killed at any
    point and run again, it continues from its last commit. `now_ms` is compared with the records'
    timestamps.
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
        # A topic that is being created has its table first; and an appender that stood still since
        # the deletion must find the commit that tells of it.
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
    segments = Segments(topic.table)
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
        # Another node's upkeep may have removed them since they were looked up.
        if due and not files.gone(due):
            files.rewrite(due, [])
        for run in runs:
            if not files.gone([segment.file for segment in run]):
                _pack(files, run, now_ms)
    if thorough:
        vacuum(handle, topic.topic, settings.vacuum_retention_hours)
        clean_log(handle)
    return RetentionResult.of(topic.topic, before, data_files(handle), started)


def expired(partition: PartitionSegments, config: TopicConfig, now_ms: int) -> list[Segment]:
    """The segments of a partition that are past its topic's retention: the first ones."""
    found: list[Segment] = []
    left = sum(segment.file.size for segment in partition.segments)
    for segment in partition.segments:
        limit = config.retention_ms
        is_old = limit >= 0 and segment.max_timestamp < now_ms - limit
        most = config.retention_bytes
        is_over = most >= 0 and left - segment.file.size >= most
        # A batch that comes again is known by the file that it is in.
        is_known = bool(segment.batches) and segment.file.modified_ms > now_ms - SENT_AGAIN_MS
        if is_known or not (is_old or is_over):
            break
        found.append(segment)
        left -= segment.file.size
    return found


def packs(segments: Sequence[Segment], config: TopicConfig) -> Iterator[list[Segment]]:
    """Yield the small segments of a partition that become one: neighbours, of one span of time."""
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
    """Yield the run without the first files that are larger than all that follow them.

    So what was packed before is packed again when as much has come, and not at each look.
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
    """Make one file of the segments, a row group in memory at a time."""
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
    batches = merged(
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
    """Delete the table of a topic that is not there any more."""
    folder = local_folder(topic.table)
    if folder is not None:
        if folder.exists():
            shutil.rmtree(folder)
            log.info("topic %s was deleted: so is %s", topic.topic, folder)
        return
    files = open_files(topic.table)
    files.delete_dir_contents("", missing_dir_ok=True, accept_root_dir=True)
