"""Packing: rows of the `requests` table as packed events (`pipeline.stream.packed`).

Arrow's own functions put the JSON together a column at a time, at 1.2 to 1.7 us a heartbeat; only
values with lists or bytes in them, or with characters that JSON escapes, go through Python's
values, at 3.5 us. A file mostly holds one api's requests, so columns and fields that are null
throughout are dropped at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stream.packed import KEY_WIDTH, NO_TIME, PACKED_SCHEMA

_MICROS = pa.timestamp("us", tz="UTC")
# What stands in JSON as something else.
_ESCAPED = r'[\x00-\x1f"\\]'
_encode = msgspec.json.Encoder().encode


def pack_rows(rows: pa.Table) -> pa.Table:
    """Return the group id and the packed event of each row, as `PACKED_SCHEMA` has them.

    Nulls are left out, bytes are base64, `sent_at` is ms. A column that the rows do not have is
    null. Strings become valid UTF-8 (`valid_utf8`).
    """
    rows = valid_utf8(rows)
    columns = dict(zip(rows.column_names, _arrays(rows), strict=True))
    keys = pa.array([NO_TIME] * len(rows), pa.string())
    if "sent_at" in columns:
        micros = columns["sent_at"].cast(_MICROS, safe=False).cast(pa.int64())
        known = pc.max_element_wise(micros, 0, skip_nulls=False).cast(pa.string())
        keys = pc.coalesce(pc.ascii_lpad(known, KEY_WIDTH, "0"), keys)
        columns["sent_at"] = pc.divide(pc.subtract(micros, _modulo(micros, 1000)), 1000)
    events = pc.binary_join_element_wise(keys, _object(columns, len(rows)), "")
    groups = columns.get("group_id", pa.nulls(len(rows)))
    return pa.table([groups.cast(pa.string()), events], schema=PACKED_SCHEMA)


def valid_utf8(rows: pa.Table) -> pa.Table:
    """Return the rows with U+FFFD for each invalid byte sequence of a string, however nested.

    It is what Spark's `make_valid_utf8` does. Rows whose strings are all valid come back as they
    are, with their types; strings that were replaced are of type `string`.
    """
    if is_valid_utf8(rows):
        return rows
    return pa.table([_valid(column) for column in _arrays(rows)], names=rows.column_names)


def is_valid_utf8(rows: pa.Table) -> bool:
    """Whether every string of the rows is UTF-8, which other writers need not care for."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    """As in Python: not negative."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, by), rest)


def _arrays(rows: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in rows.columns]


def _object(fields: dict[str, pa.Array], length: int) -> pa.Array:
    """JSON objects of what is not null in the fields."""
    members = [
        pc.binary_join_element_wise(f'"{name}":', _json(array), ",", "")
        for name, array in fields.items()
        if array.null_count < length
    ]
    if not members:
        return pa.array(["{}"] * length, pa.string())
    # Not null_handling="skip", which loses the rows that are null in every field (Arrow 26).
    joined = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
    return pc.binary_join_element_wise("{", pc.ascii_rtrim(joined, ","), "}", "")


def _json(array: pa.Array) -> pa.Array:
    """The values as JSON texts, null where they are."""
    kind = array.type
    if pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = array.cast(pa.string())
        if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
            return pc.binary_join_element_wise('"', texts, '"', "")
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        texts = _object(dict(zip(names, array.flatten(), strict=True)), len(array))
        return pc.if_else(array.is_valid(), texts, None)
    encoded = [None if value is None else _encode(value) for value in _plain_values(array)]
    return pa.array(encoded, pa.binary()).cast(pa.string())


def _plain_values(array: pa.Array) -> Sequence[Any]:
    """An array as Python values, with structs as dicts of what is not null in them."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        columns = [_plain_values(child) for child in array.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            if valid
            else None
            for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _plain_values(array.flatten())
        lengths = array.value_lengths().to_pylist()
        ends = list(accumulate(length or 0 for length in lengths))
        return [
            None if length is None else items[end - length : end]
            for length, end in zip(lengths, ends, strict=True)
        ]
    return list(array.to_pylist())


def _valid(array: pa.Array) -> pa.Array:
    """The same array with strings that are UTF-8."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [_valid(child) for child in array.flatten()]
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _valid(array.flatten())
        lengths = (length or 0 for length in array.value_lengths().to_pylist())
        offsets = pa.array(accumulate(lengths, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=array.is_null())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = array.cast(pa.large_binary()).to_pylist()
        valid = [None if text is None else text.decode("utf-8", "replace") for text in texts]
        return pa.array(valid, pa.string())
    return array
