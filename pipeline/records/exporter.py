"""Export of the offsets topic to a file of Kafka's own binary records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta import is_table
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.records.record_file import (
    MILLIS,
    RAW_RECORDS,
    STDIO,
    Progress,
    RawRecord,
    Say,
    Tally,
    batches,
    is_parquet,
    sorted_rows,
    to_stderr,
)
from group_coordinator.pipeline.tables import dataset, open_table, table_uri
from group_coordinator.schemas.kafka.codec import encode_key, encode_value
from group_coordinator.schemas.kafka.writing import NotEncodable
from group_coordinator.schemas.messages import Int64
from group_coordinator.schemas.records import KNOWN_TYPES, CoordinatorRecord
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow

_LOG_COLUMNS = {
    "partition": "partition",
    "log_offset": "log_offset",
    "timestamp": MILLIS,
    "record_type": "record_type",
    "group_id": "group_id",
    "topic": "topic",
    "topic_partition": "topic_partition",
    "offset_commit": "offset_commit",
    "group_metadata": "group_metadata",
    "key": "key",
    "value": "value",
}


def export(root: str, out: str = STDIO, say: Say = to_stderr) -> Tally:
    """Write the offsets topic, ordered by partition and log offset, to the file `out`.

    "-" is stdout. It exports the table's version at the time of the call, with bounded memory, and
    reports progress to `say`. The file gets its name when it is complete. Raises Failure if the
    root has no offsets topic or the file's ending is of no known format. Raises OSError if the file
    cannot be written.
    """
    if not is_table(table_uri(root, OFFSETS_TOPIC)):
        raise Failure(f"there is no offsets topic under {root}")
    handle = open_table(root, OFFSETS_TOPIC)
    tally = Tally()
    progress = Progress(say, "exported")
    log = dataset(handle, OFFSETS_TOPIC)
    rows = sorted_rows(log, _LOG_COLUMNS, ("partition", "log_offset"))
    raws = (raw for row in rows if (raw := _to_raw(row, tally)) is not None)
    with _open_output(out) as write:
        for batch in batches((raw, raw.size) for raw in raws):
            write(batch)
            progress(tally)
    return tally


def _to_raw(row: dict[str, Any], tally: Tally) -> RawRecord | None:
    where = f"partition {row['partition']} offset {row['log_offset']}"
    if row["record_type"] not in KNOWN_TYPES and row["key"] is None:
        tally.skip_unknown(where, f"unknown record type {row['record_type']!r}")
        return None
    try:
        record = msgspec.convert(row, CoordinatorRecord)
        raw = RawRecord(
            partition=record.partition,
            offset=msgspec.convert(record.log_offset, Int64),
            timestamp=record.timestamp,
            key=encode_key(record) if record.key is None else record.key,
            value=encode_value(record) if record.key is None else record.value,
        )
    except (msgspec.ValidationError, NotEncodable) as error:
        tally.skip_corrupt(where, str(error))
        return None
    tally.count(raw.value is None)
    return raw


Write = Callable[[Sequence[RawRecord]], object]


@contextmanager
def _open_output(out: str) -> Iterator[Write]:
    """Open the output; a file is written under a temporary name and renamed when complete."""
    as_parquet = is_parquet(out)
    encode_lines = msgspec.json.Encoder().encode_lines
    if out == STDIO:
        yield lambda rows: sys.stdout.buffer.write(encode_lines(rows))
        sys.stdout.buffer.flush()
        return
    partial = Path(f"{out}.partial")
    try:
        if as_parquet:
            with pq.ParquetWriter(partial, RAW_RECORDS.schema) as writer:
                yield lambda rows: writer.write_table(to_arrow(RAW_RECORDS, rows))
        else:
            with partial.open("wb") as file:
                yield lambda rows: file.write(encode_lines(rows))
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
