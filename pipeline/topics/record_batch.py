"""Records of a topic, batches of records to append, and the rows that batches become."""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.topics.producer_state import NO_PRODUCER, last_sequence
from group_coordinator.schemas.tables import TIMESTAMP, TOPIC_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CREATE_TIME, LOG_APPEND_TIME = 0, 1
Headers = tuple[tuple[str, "bytes | None"], ...]
HEADERS = TOPIC_RECORDS.schema.field("headers").type


class Record(Struct, frozen=True, gc=False):
    """A record: its offset, timestamp (ms), key, value, headers and timestamp type.

    A record of a user's table has no headers.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = CREATE_TIME


class NewBatch(Struct):
    """Records of one producer for one partition, in their order; `timestamps` in ms.

    A column is a list or an Arrow array: of binary, of int64 for timestamps, of `HEADERS` for
    headers. `headers` None: no record has any. `producer_id` -1: the producer is not idempotent.
    """

    partition: int
    keys: list[bytes | None] | pa.ChunkedArray
    values: list[bytes | None] | pa.ChunkedArray
    timestamps: list[int] | pa.ChunkedArray
    headers: list[Headers] | pa.ChunkedArray | None = None
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    first_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record."""
        return last_sequence(self.first_sequence, len(self.values))


def join_batches(batches: Sequence[NewBatch]) -> NewBatch:
    """Join batches of one partition, at least one; the producer's fields are not set."""
    return NewBatch(
        batches[0].partition,
        _column((batch.keys for batch in batches), pa.binary()),
        _column((batch.values for batch in batches), pa.binary()),
        _column((batch.timestamps for batch in batches), pa.int64()),
        None if all(batch.headers is None for batch in batches) else _headers(batches),
    )


def to_rows(
    topic: str, batches: Sequence[NewBatch], base: int, append_time: int | None
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the rows of one partition's batches, and their timestamps (ms).

    The first row has offset `base`. `append_time` (ms) replaces all timestamps, unless it is None.
    """
    count = sum(len(batch.values) for batch in batches)
    if append_time is None:
        times = _column((batch.timestamps for batch in batches), pa.int64())
    else:
        times = pa.chunked_array([pa.repeat(pa.scalar(append_time, pa.int64()), count)])
    kind = CREATE_TIME if append_time is None else LOG_APPEND_TIME
    columns = {
        "key": _column((batch.keys for batch in batches), pa.binary()),
        "value": _column((batch.values for batch in batches), pa.binary()),
        "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "offset": pa.array(np.arange(base, base + count, dtype=np.int64)),
        "timestamp": times.cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP),
        "timestampType": pa.repeat(pa.scalar(kind, pa.int32()), count),
        "headers": _headers(batches),
    }
    return pa.table(columns), times


def _column(parts: Iterable[Any], kind: pa.DataType) -> pa.ChunkedArray:
    chunks: list[pa.Array] = []
    for are_lists, run in groupby(parts, lambda part: isinstance(part, list)):
        if are_lists:
            chunks.append(pa.array(list(chain.from_iterable(run)), kind))
        else:
            chunks.extend(chain.from_iterable(each.chunks for each in run))
    return pa.chunked_array(chunks, kind)


def _headers(batches: Sequence[NewBatch]) -> pa.ChunkedArray:
    """Return the headers column: null for a record without headers, as in Spark's Kafka source."""
    if all(batch.headers is None for batch in batches):
        return pa.chunked_array([pa.nulls(sum(len(each.values) for each in batches), HEADERS)])
    return _column((_headers_of(batch) for batch in batches), HEADERS)


def _headers_of(batch: NewBatch) -> Any:
    if batch.headers is None:
        return pa.chunked_array([pa.nulls(len(batch.values), HEADERS)])
    if not isinstance(batch.headers, list):
        return batch.headers
    return [[{"key": key, "value": value} for key, value in each] or None for each in batch.headers]
