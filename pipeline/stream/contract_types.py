"""Conversion of rows of `requests` to the types of the table's schema.

Delta does not enforce the schema on a Parquet file that another writer adds:

* A type with the same values is converted: large_string, string view, binary or dictionary for a
  string, an integer of another width, a list of another layout.
* A column of another type, such as double for a string, is *foreign*: each value becomes a list
  with the type's name. No field of a request is a list of strings, so the decoder refuses the
  request and names the field. An error here would end the stream, and every restart would read the
  file again.

`valid_utf8` repairs strings that are not UTF-8, which would end a stream too.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.schemas.tables import REQUESTS

_FOREIGN = pa.list_(pa.string())
# The name of a nested type may be as long as a file's schema.
_LONGEST_NAME = 100


def in_contract_types(rows: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of `requests` that the rows have, by name, in the types of its schema.

    Invalid UTF-8 becomes U+FFFD. Integers and timestamps keep their width; a foreign column becomes
    `list<string>`. Columns with only nulls are omitted.
    """
    columns = {}
    for field in REQUESTS.schema:
        places = rows.schema.get_all_field_indices(field.name)
        if places and rows.column(places[0]).null_count < len(rows):
            array = _whole(rows.column(places[0]))
            as_it_is = array.type == field.type and is_valid_utf8(array)
            columns[field.name] = array if as_it_is else _converted(array, field.type)
    return columns


def texts(columns: dict[str, pa.Array], name: str, rows: int) -> pa.Array:
    """Return a string column; nulls if it is missing or has another type."""
    found = columns.get(name)
    if found is None or not pa.types.is_string(found.type):
        return pa.nulls(rows, pa.string())
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), wanted)
    if pa.types.is_string(wanted) and _is_text(kind):
        text = _bytes(array).view(pa.string())
        return text if is_valid_utf8(text) else valid_array(text)
    if pa.types.is_binary(wanted) and _is_text(kind):
        return _bytes(array)
    if pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        return _struct(array, wanted)
    if pa.types.is_list(wanted) and _is_list(kind):
        return _list(array, wanted)
    for is_kind in (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_boolean):
        if is_kind(wanted) and is_kind(kind):
            return array
    name = pa.scalar([str(kind)[:_LONGEST_NAME]], _FOREIGN)
    return pc.if_else(array.is_valid(), name, pa.scalar(None, _FOREIGN))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    tests = (*strings, *binaries, pa.types.is_fixed_size_binary)
    return any(is_kind(kind) for is_kind in tests)


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in tests)


def _bytes(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _bytes(array.dictionary).take(array.indices)
    if pa.types.is_large_string(kind):
        array = array.view(pa.large_binary())
    elif pa.types.is_string_view(kind):
        array = array.view(pa.binary_view())
    elif pa.types.is_string(kind):
        array = array.view(pa.binary())
    return array.cast(pa.binary())


def _struct(array: pa.Array, wanted: pa.StructType) -> pa.Array:
    kind, children = array.type, array.flatten()
    places = {field.name: kind.get_field_index(field.name) for field in wanted}
    fields = {
        name: _converted(children[place], wanted.field(name).type)
        for name, place in places.items()
        if place >= 0
    }
    if not fields:
        empty: list[dict[str, Any] | None] = [
            {} if valid else None for valid in array.is_valid().to_pylist()
        ]
        return pa.array(empty, pa.struct([]))
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=array.is_null())


def _list(array: pa.Array, wanted: pa.ListType) -> pa.Array:
    lengths = pc.list_value_length(array).to_pylist()
    items = _converted(array.flatten(), wanted.value_type)
    offsets = pa.array(accumulate((length or 0 for length in lengths), initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, items, mask=array.is_null())


def valid_utf8(rows: pa.Table) -> pa.Table:
    """Return the rows with U+FFFD for each invalid UTF-8 sequence, also in nested strings.

    Spark's `make_valid_utf8` does the same. Valid rows are returned unchanged; otherwise all
    strings get the type `string`.
    """
    if is_valid_utf8(rows):
        return rows
    columns = [valid_array(column.combine_chunks()) for column in rows.columns]
    return pa.table(columns, names=rows.column_names)


def is_valid_utf8(rows: pa.Table | pa.Array) -> bool:
    """Whether every string is valid UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def valid_array(array: pa.Array) -> pa.Array:
    """Return an array with valid UTF-8; see `valid_utf8`."""
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
