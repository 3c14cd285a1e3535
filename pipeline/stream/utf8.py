"""Repair of strings that are not UTF-8: Parquet writers may write them, and they end a stream."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa


def valid_utf8(rows: pa.Table) -> pa.Table:
    """Return the rows with U+FFFD for each invalid byte sequence of a string, however nested.

    Spark's `make_valid_utf8` does the same. If all strings are valid, the rows are returned
    unchanged, with their types; otherwise strings get the type `string`.
    """
    if is_valid_utf8(rows):
        return rows
    columns = [valid_array(column.combine_chunks()) for column in rows.columns]
    return pa.table(columns, names=rows.column_names)


def is_valid_utf8(rows: pa.Table | pa.Array) -> bool:
    """Whether every string of the rows is UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def valid_array(array: pa.Array) -> pa.Array:
    """Return the same array with strings that are UTF-8; see `valid_utf8`."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [valid_array(child) for child in array.flatten()]
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = valid_array(array.flatten())
        lengths = (length or 0 for length in array.value_lengths().to_pylist())
        offsets = pa.array(accumulate(lengths, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=array.is_null())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = array.cast(pa.large_binary()).to_pylist()
        valid = [None if text is None else text.decode("utf-8", "replace") for text in texts]
        return pa.array(valid, pa.string())
    return array
