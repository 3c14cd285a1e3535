"""Rows of the `requests` table as packed events: `<order key><event as JSON>`.

It is what `pipeline.source.pack` makes of the same rows in the JVM, at 4 us a row. A file mostly
holds one api's requests, so the columns and fields that are null throughout are dropped at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.source import KEY_WIDTH, NO_TIME

_MICROS = pa.timestamp("us", tz="UTC")
_encode = msgspec.json.Encoder().encode


def pack_rows(rows: pa.Table) -> tuple[list[str | None], list[str]]:
    """Return the group id and the packed event of each row.

    Nulls are left out, bytes are base64, `sent_at` is ms. A column that the rows do not have is
    null. What is not UTF-8 in a string becomes U+FFFD, as Spark's `make_valid_utf8` has it.
    """
    try:
        return _pack(rows)
    except UnicodeDecodeError:
        return _pack(
            pa.table([_valid(column) for column in _arrays(rows)], names=rows.column_names)
        )


def _pack(rows: pa.Table) -> tuple[list[str | None], list[str]]:
    columns = {
        name: array
        for name, array in zip(rows.column_names, _arrays(rows), strict=True)
        if array.null_count < len(array)
    }
    values: dict[str, Sequence[Any]] = {}
    keys: Sequence[str] = [NO_TIME] * len(rows)
    for name, array in columns.items():
        if name == "sent_at":
            micros = array.cast(_MICROS, safe=False).cast(pa.int64()).to_pylist()
            keys = [NO_TIME if each is None else f"{max(each, 0):0{KEY_WIDTH}}" for each in micros]
            values[name] = [None if each is None else each // 1000 for each in micros]
        else:
            values[name] = plain_values(array)
    groups = values.get("group_id")
    rows_as_dicts = _dicts(values, len(rows))
    events = [key + _encode(row).decode() for key, row in zip(keys, rows_as_dicts, strict=True)]
    return [None] * len(rows) if groups is None else list(groups), events


def _arrays(rows: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in rows.columns]


def plain_values(array: pa.Array) -> list[Any]:
    """An array as Python values, with structs as dicts of what is not null in them."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields: dict[str, Sequence[Any]] = {
            kind.field(index).name: plain_values(child)
            for index, child in enumerate(array.flatten())
            if child.null_count < len(child)
        }
        dicts = _dicts(fields, len(array))
        if not array.null_count:
            return dicts
        return [
            each if valid else None
            for each, valid in zip(dicts, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = plain_values(array.flatten())
        lengths = array.value_lengths().to_pylist()
        lists: list[Any] = []
        at = 0
        for length in lengths:
            lists.append(None if length is None else items[at : at + length])
            at += length or 0
        return lists
    return list(array.to_pylist())


def _dicts(fields: dict[str, Sequence[Any]], length: int) -> list[dict[str, Any]]:
    if not fields:
        return [{} for _ in range(length)]
    names = list(fields)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*fields.values(), strict=True)
    ]


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
        offsets = pa.array(itertools.accumulate(lengths, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=array.is_null())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = array.cast(pa.large_binary()).to_pylist()
        valid = [None if text is None else text.decode("utf-8", "replace") for text in texts]
        return pa.array(valid, pa.string())
    return array
