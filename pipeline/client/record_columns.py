"""Columns of records in an Arrow table: types, sizes and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.coordinator.producer.record_accumulator import RECORD_OVERHEAD, record_size
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.topics import HEADERS, positive_hashes

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.record_accumulator import TopicQueue

Array = np.ndarray[Any, Any]
_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "partition": pa.int32(),
    "timestamp": pa.int64(),
    "headers": HEADERS,
}


class InvalidColumns(UsageError):
    """A table without the columns of records. The message names the invalid columns."""


def cast_columns(table: pa.Table, now_ms: int) -> pa.Table:
    """Cast a table to the columns value, key, partition, timestamp and headers.

    A missing timestamp is `now_ms`; the other missing columns are null. Raises InvalidColumns.
    """
    unknown = [name for name in table.column_names if name not in _TYPES]
    if unknown or "value" not in table.column_names:
        raise InvalidColumns(
            f"columns {', '.join(table.column_names) or 'none'}: records have a `value`, and may "
            "have a `key`, a `partition`, a `timestamp` and `headers`"
        )
    columns = {}
    for name, kind in _TYPES.items():
        if name not in table.column_names:
            columns[name] = _default_column(name, table.num_rows, now_ms)
            continue
        column = table.column(name)
        try:
            if name == "timestamp" and pa.types.is_timestamp(column.type):
                # Kafka's timestamps are in ms, so finer ones are truncated.
                column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
            columns[name] = column.cast(kind)
        except pa.ArrowException as error:
            raise InvalidColumns(f"column {name!r} cannot be {kind}: {error}") from error
    for name in ("partition", "timestamp"):
        if name in table.column_names and columns[name].null_count:
            raise InvalidColumns(f"column {name!r} has nulls")
    return pa.table(columns)


def _default_column(name: str, count: int, now_ms: int) -> pa.Array:
    if name == "timestamp":
        return pa.repeat(pa.scalar(now_ms, pa.int64()), count)
    return pa.nulls(count, _TYPES[name])


def record_sizes(keys: Any, values: Any, headers: Any) -> Iterator[int]:
    """Yield the size of each record, bytes. Columns are lists or Arrow columns."""
    if not isinstance(keys, list):
        yield from column_sizes(keys, values, headers).tolist()
        return
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        yield record_size(key, value, headers[index] if headers is not None else ())


def column_sizes(keys: pa.ChunkedArray, values: pa.ChunkedArray, headers: Any) -> Array:
    """Return the size of each record, bytes, as `record_size` counts it."""
    sizes = RECORD_OVERHEAD + _lengths(keys) + _lengths(values)
    if headers is not None and headers.null_count < len(headers):
        for index, record_headers in enumerate(headers.to_pylist()):
            if record_headers:
                pairs = [(header["key"], header["value"]) for header in record_headers]
                sizes[index] += record_size(None, None, pairs) - RECORD_OVERHEAD
    return sizes


def _lengths(column: pa.ChunkedArray) -> Array:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(), np.int64)


def partitions_of(rows: pa.Table, queue: TopicQueue, uses_key_hash: bool) -> Array:
    """Return each row's partition: from its column, by the key's hash, or by the queue's choice.

    `uses_key_hash`: the topic's partitioner uses the hash of the key.
    """
    column = rows.column("partition")
    if not column.null_count:
        return np.asarray(column.to_numpy(), np.int64)
    keys = rows.column("key")
    if uses_key_hash:
        partitions = np.concatenate(
            [positive_hashes(chunk.cast(pa.large_binary())) for chunk in keys.chunks]
            or [np.zeros(0, np.int64)]
        )
        partitions %= queue.count
        if keys.null_count:
            without = np.asarray(keys.is_null().to_numpy())
            # Rows without a key form one batch, so all go to one partition.
            partitions[without] = queue.choose_partition(None, None, 0)
        return partitions
    pairs: Iterable[tuple[bytes | None, bytes | None]] = zip(
        keys.to_pylist(), rows.column("value").to_pylist(), strict=True
    )
    return np.array([queue.choose_partition(key, value, 0) for key, value in pairs], np.int64)


def by_partition(
    rows: pa.Table, partitions: Array, sizes: Array
) -> Iterator[tuple[int, tuple[Any, ...], Array]]:
    """Yield each partition's number, and the columns and sizes of its rows, in their order.

    The columns are keys, values, timestamps and headers. Headers are None if no row has headers.
    """
    headers = rows.column("headers")
    names = ["key", "value", "timestamp"]
    if headers.null_count < len(headers):
        names.append("headers")
    rows = rows.select(names)
    for number, indexes in _partition_indexes(partitions):
        part = rows if indexes is None else rows.take(pa.array(indexes))
        columns = (*part.columns, None)[:4]
        yield number, columns, sizes if indexes is None else sizes[indexes]


def _partition_indexes(partitions: Array) -> Iterator[tuple[int, Array | None]]:
    """Yield each partition with the indexes of its rows; None means all rows."""
    lowest, highest = int(partitions.min()), int(partitions.max())
    if lowest == highest:
        yield lowest, None
        return
    # NumPy sorts 16-bit integers by radix sort, in linear time.
    narrow = partitions.astype(np.int16) if highest < 1 << 15 else partitions
    order = np.argsort(narrow, kind="stable")
    numbers, starts = np.unique(narrow[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def split_by_size(sizes: Array, max_bytes: int) -> Iterator[slice]:
    """Yield slices of consecutive rows, each of at most `max_bytes` bytes. `sizes` are in bytes."""
    if not len(sizes):
        return
    if sizes.sum() <= max_bytes:
        yield slice(0, len(sizes))
        return
    numbers = (np.cumsum(sizes) - sizes) // max(1, max_bytes - int(sizes.max()))
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    yield from starmap(slice, pairwise([*starts, len(sizes)]))
