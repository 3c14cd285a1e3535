"""Sizes of request events as JSON, computed from rows before they are packed.

JSON writes a control character as six bytes, so a value of 17 MB may become an event of 102 MB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MICROS = pa.timestamp("us", tz="UTC")
_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
# The size of a null in a list, and the approximate size of a value of a type outside the contract.
_NULL = pa.scalar(len("null"), pa.int64())
_OTHER_TYPE = pa.scalar(100, pa.int64())
# How many bytes JSON adds for each byte of a text.
_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[:0x20] = 5
_ESCAPES[list(b'"\\\b\f\n\r\t')] = 1


def event_sizes(rows: pa.Table) -> pa.Array:
    """Return the length in bytes of each row's event as JSON (`pipeline.stream.packed_events`).

    The length is approximate for texts that are not UTF-8, and for types that `requests` does not
    have.
    """
    columns = [column.combine_chunks() for column in rows.columns]
    return _object_sizes(rows.column_names, columns, rows.num_rows)


def _object_sizes(names: Sequence[str], fields: Sequence[pa.Array], length: int) -> pa.Array:
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    members = total
    for name, array in zip(names, fields, strict=True):
        if array.null_count < length:
            present = array.is_valid().cast(pa.int64())
            quoted = pc.multiply(present, len(name) + 3)  # "name":
            total = pc.add(total, pc.add(quoted, pc.coalesce(_sizes(array), 0)))
            members = pc.add(members, present)
    commas = pc.max_element_wise(pc.subtract(members, 1), 0)
    return pc.add(pc.add(total, commas), 2)


def _sizes(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _sizes(array.dictionary).take(array.indices)
    if any(is_kind(kind) for is_kind in _STRINGS):
        return _string_sizes(array)
    if any(is_kind(kind) for is_kind in _BINARIES):
        lengths = pc.binary_length(array.cast(pa.large_binary()))
        return pc.add(pc.multiply(pc.divide(pc.add(lengths, 2), 3), 4), 2)
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        sizes = _object_sizes(names, array.flatten(), len(array))
        return pc.if_else(array.is_valid(), sizes, None)
    if any(is_kind(kind) for is_kind in _LISTS):
        return _list_sizes(array)
    if pa.types.is_timestamp(kind):
        # JSON has milliseconds, which have three digits fewer than microseconds.
        digits = pc.binary_length(
            array.cast(_MICROS, safe=False).cast(pa.int64()).cast(pa.string())
        )
        return pc.max_element_wise(pc.subtract(digits.cast(pa.int64()), 3), 1, skip_nulls=False)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.binary_length(array.cast(pa.string())).cast(pa.int64())
    # Another type than the schema's: the event has the type's name instead of the value.
    return pc.if_else(array.is_valid(), _OTHER_TYPE, None)


def _string_sizes(array: pa.Array) -> pa.Array:
    lengths = pc.binary_length(array.cast(pa.large_binary()))
    return pc.add(pc.add(lengths, pa.array(_escapes(array))), 2)


def _escapes(array: pa.Array) -> np.ndarray:
    """Return how many bytes the escapes of each text add; 0 for null."""
    texts = pc.coalesce(array.cast(pa.large_binary()), b"")
    _, offsets, content = texts.buffers()
    found = np.zeros(len(texts), np.int64)
    if content is None or not len(texts):
        return found
    ends = np.frombuffer(offsets, np.int64)[texts.offset :][: len(texts) + 1]
    more = _ESCAPES[np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]]
    if more.any():
        some = np.flatnonzero(np.diff(ends))
        found[some] = np.add.reduceat(more, ends[some] - ends[0], dtype=np.int64)
    return found


def _list_sizes(array: pa.Array) -> pa.Array:
    sizes = pc.coalesce(_sizes(array.flatten()), _NULL)
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes.cast(pa.int64()))])
    lengths = pc.list_value_length(array).cast(pa.int64())
    ends = pc.cumulative_sum(pc.coalesce(lengths, 0))
    starts = pc.subtract(ends, pc.coalesce(lengths, 0))
    items = pc.subtract(sums.take(ends), sums.take(starts))
    commas = pc.max_element_wise(pc.subtract(lengths, 1), 0, skip_nulls=False)
    return pc.add(pc.add(items, commas), 2)
