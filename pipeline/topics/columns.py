"""The columns of a row as a Kafka record: key, partition, value and timestamp.

Keys and values are bytes: a string as UTF-8, a binary value unchanged, an integer as decimal text.
Other types are refused, because producers do not agree on their text. A key's partition is chosen
as by Kafka's BuiltInPartitioner.partitionForKey, for a whole column at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from group_coordinator.pipeline.topics.topic_errors import InvalidTable

if TYPE_CHECKING:
    from group_coordinator.schemas.rows import TopicTable


from typing import Any

from group_coordinator.coordinator.producer.partitioners import POSITIVE, SEED, M, positive_hash

# Keys longer than this (bytes) are hashed one by one. A step over the column hashes four bytes of
# each key, so one long key would need a step for each of its words.
_LONG = 256

Array = np.ndarray[Any, Any]
_decode_values = msgspec.json.Decoder(dict[str, str | None]).decode


class Columns(Struct, frozen=True):
    """A topic's table, and the types of its columns."""

    topic: TopicTable
    types: dict[str, pa.DataType]

    def check(self) -> None:
        """Raise InvalidTable unless the topic's columns exist and have supported types."""
        topic = self.topic
        for option, name, allowed in (
            ("--key", topic.key_column, _is_bytes),
            ("--partition", topic.partition_column, pa.types.is_integer),
            ("--value", topic.value_column, _is_bytes),
            ("--timestamp", topic.timestamp_column, _is_time),
        ):
            if name is None:
                continue
            type_ = self.types.get(name)
            if type_ is None:
                raise InvalidTable(
                    f"{option}: {topic.table} has no column {name!r}, only {', '.join(self.types)}"
                )
            if not allowed(type_):
                raise InvalidTable(
                    f"{option}: column {name!r} of {topic.table} is {type_}, and must be "
                    f"{_ALLOWED[option]}"
                )

    @property
    def placing(self) -> list[str]:
        """The columns that determine a record's key, partition and timestamp."""
        topic = self.topic
        named = (topic.key_column, topic.partition_column, topic.timestamp_column)
        return [name for name in named if name is not None]

    @property
    def served(self) -> list[str] | None:
        """The columns that records are made of; None for all columns."""
        value = self.topic.value_column
        return None if value is None else list(dict.fromkeys([*self.placing, value]))

    def with_partition_values(self, rows: pa.Table, values: str | None) -> pa.Table:
        """Append the table's partition columns, which its files lack.

        `values` is the JSON object of an add action's partition values; None: there are no such
        columns.
        """
        if values is None:
            return rows
        for name, text in _decode_values(values).items():
            column = pa.repeat(pa.scalar(text or None, pa.string()), rows.num_rows)
            rows = rows.append_column(name, column.cast(self.types[name]))
        return rows

    def partitions(self, rows: pa.Table, count: int, turn: int) -> Array:
        """Return each row's partition, as int64, for a topic of `count` partitions.

        By key: toPositive(murmur2(key)) % count, as Kafka's producers choose. Rows without a key
        are assigned round-robin: the first row to partition `turn` % count, and so on. By the
        partition column: its number. Raises InvalidTable for a number that is not a partition.
        """
        topic = self.topic
        if topic.partition_column is not None:
            return self._numbers(rows, topic.partition_column, count)
        assert topic.key_column is not None
        if count == 1:
            return np.zeros(rows.num_rows, np.int64)
        keys = as_bytes(rows, topic.key_column)
        numbers = positive_hashes(keys)
        if keys.null_count:
            missing = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
            numbers[missing] = missing + turn
        return numbers % count

    def _numbers(self, rows: pa.Table, name: str, count: int) -> Array:
        column = _column(rows, name, pa.int64()).cast(pa.int64())
        outside = pc.or_kleene(pc.less(column, 0), pc.greater_equal(column, count))
        wrong = pc.index(pc.fill_null(outside, True), True).as_py()
        if wrong >= 0:
            raise InvalidTable(
                f"a row has {column[wrong].as_py()} in {name!r}, and topic {self.topic.topic!r} "
                f"has partitions 0 to {count - 1}"
            )
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers

    def timestamps(self, rows: pa.Table, committed_at: int) -> Array:
        """Return each row's timestamp, ms, at least 0; `committed_at` for a row without one."""
        name = self.topic.timestamp_column
        if name is None:
            return np.full(rows.num_rows, committed_at, np.int64)
        times = _column(rows, name, pa.int64())
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        filled = pc.fill_null(times.cast(pa.int64()), committed_at)
        found: Array = np.maximum(filled.to_numpy(zero_copy_only=False), 0)
        return found


_ALLOWED = {
    "--key": "a string, binary or an integer",
    "--partition": "an integer",
    "--value": "a string, binary or an integer",
    "--timestamp": "a timestamp, or an integer of ms since 1970",
}


def as_bytes(rows: pa.Table, name: str) -> pa.LargeBinaryArray:
    """Return a column as bytes; null if the rows' file lacks it."""
    column = _column(rows, name, pa.large_binary())
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.large_binary())


def _column(rows: pa.Table, name: str, type_if_missing: pa.DataType) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, type_if_missing)
    combined = rows.column(name).combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    binary = types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_)
    return bool(text or binary or types.is_integer(type_))


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_integer(type_))


# --- hashes of keys -------------------------------------------------------------------------------


def positive_hashes(keys: pa.Array) -> Array:
    """Return toPositive(murmur2(key)) of each key as an int64 array; 0 if the key is null.

    `keys` is of type `large_binary`.
    """
    count = len(keys)
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, count + 1, keys.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.zeros(count, np.uint32)
    short = lengths <= _LONG
    # With the longest first, the keys that still have a word at a step are the first ones.
    order = np.argsort(-lengths[short], kind="stable")
    places = np.flatnonzero(short)[order]
    hashes[places] = _hash_sorted(data, starts[places], lengths[places])
    for place in np.flatnonzero(~short):
        start = starts[place]
        hashes[place] = positive_hash(data[start : start + lengths[place]].tobytes())
    found: Array = (hashes & POSITIVE).astype(np.int64)
    if keys.null_count:
        found[np.asarray(keys.is_null())] = 0
    return found


def _hash_sorted(data: Array, starts: Array, lengths: Array) -> Array:
    hashes: Array = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    longest = int(words[0]) if len(words) else 0
    for step in range(longest):
        having = len(words) - int(np.searchsorted(words[::-1], step, side="right"))
        at = starts[:having] + 4 * step
        word = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        part = hashes[:having]
        part *= np.uint32(M)
        part ^= _mixed(word)
    rest, tails = lengths % 4, starts + 4 * words
    for byte in (2, 1, 0):
        places = np.flatnonzero(rest > byte)
        hashes[places] ^= data[tails[places] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes[rest > 0] *= np.uint32(M)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(M)
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mixed(words: Array) -> Array:
    mixed: Array = words * np.uint32(M)
    mixed ^= mixed >> np.uint32(24)
    mixed *= np.uint32(M)
    return mixed
