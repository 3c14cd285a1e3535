"""The columns of a table that another release may have made: compared, added, or refused by name.

A release only ever adds columns, and fields at the end of a struct; what it adds may be null. So:

* A table of an earlier release lacks columns. Whoever opens it to write adds them, in one commit
  that changes the schema alone; a reader takes them as null (`with_columns`).
* A table of a later release has further columns. They stay null in the rows of this release.
* A later release that must not share a table with this one says so: by a column that must not be
  null, or by a higher number in the table's property `FORMAT_PROPERTY`.

Releases that run at the same time may thus use one root, unless the later one has said that they
may not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import CommitFailedError

from group_coordinator.pipeline.clock import back_off
from group_coordinator.pipeline.delta.data_files import dataset_of
from group_coordinator.pipeline.delta.table import ATTEMPTS, refresh
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.format import FORMAT, FORMAT_PROPERTY, is_known_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltalake import DeltaTable
    from pyarrow import dataset as ds

    from group_coordinator.schemas.tables import Table

log = logging.getLogger(__name__)


class SchemaMismatch(Failure):
    """A table has not the columns that it must have; the message names those that differ."""


class LaterRelease(Failure):
    """A later release has changed a table so that this one cannot use it; the message says how."""


def check_columns(handle: DeltaTable, table: Table) -> list[str]:
    """Return the columns of this release that the table lacks, dotted within structs.

    Raises SchemaMismatch for columns of another type, for a table without a column that every
    release has, and for another partitioning; LaterRelease for a table of a later format.
    """
    found = _schema(handle)
    problems = [
        f"column {name} is missing" for name in table.required if name not in found.names
    ] + list(_differences(found, table.schema))
    partitioned = tuple(handle.metadata().partition_columns)
    if partitioned != table.partition_by:
        problems.append(f"it is partitioned by {partitioned}, not {table.partition_by}")
    if problems:
        raise SchemaMismatch(
            f"the table at {handle.table_uri} is not a {table.name} table: {'; '.join(problems)}. "
            "Move it away, or choose another root."
        )
    check_format(handle, table)
    return list(_missing(found, table.schema))


def check_format(handle: DeltaTable, table: Table) -> None:
    """Raise LaterRelease for a table whose rows this release cannot read, by its own word."""
    properties = handle.metadata().configuration
    if not is_known_format(properties):
        found_format = properties[FORMAT_PROPERTY]
        raise _later(
            handle, table, f"it has format {found_format}, and this release knows {FORMAT}"
        )


def add_missing_columns(handle: DeltaTable, table: Table) -> None:
    """Add the columns of this release that the table lacks, and say so in one line of the log.

    Raises what `check_columns` raises, and LaterRelease for a column that must not be null and that
    this release does not have. Others may append meanwhile, and add the same columns.
    """
    for attempt in range(ATTEMPTS):
        missing = check_columns(handle, table)
        found = _schema(handle)
        unknown = list(_unknown_required(found, table.schema))
        if unknown:
            raise _later(handle, table, f"it wants {', '.join(unknown)} in every row")
        if not missing:
            return
        wanted = Schema.from_arrow(with_columns(found, table.schema))
        changed = [field for field in wanted.fields if _top(field.name, missing)]
        try:
            handle.alter.add_columns(changed)
        except CommitFailedError:
            if attempt == ATTEMPTS - 1:
                raise
            back_off(attempt)
            refresh(handle)
        else:
            names = ", ".join(missing)
            log.info("the %s table is an earlier release's: added %s", table.name, names)
            return


def dataset(handle: DeltaTable, table: Table) -> ds.Dataset:
    """Return the table's rows; what the table lacks of this release's columns is null in them.

    Raises what `check_columns` raises.
    """
    rows = dataset_of(handle)
    if not check_columns(handle, table):
        return rows
    wanted = with_columns(rows.schema, table.schema)
    # Not `rows.replace_schema`, which refuses a struct that lacks a field.
    return type(rows)(rows.get_fragments(), wanted, rows.format, rows.filesystem)


def with_columns(found: pa.Schema, ours: pa.Schema) -> pa.Schema:
    """Return the schema `found` with what it lacks of `ours` after its own, also within structs."""
    return pa.schema(_with_fields(found, ours))


def plain(type_: pa.DataType) -> str:
    """Write a type in full, without nullability and item names, which differ between engines."""
    if pa.types.is_struct(type_):
        return "struct<" + ", ".join(f"{f.name}: {plain(f.type)}" for f in type_) + ">"
    if _is_list(type_):
        return f"array<{plain(type_.value_type)}>"
    return {"string_view": "string", "binary_view": "binary"}.get(str(type_), str(type_))


def _top(name: str, missing: list[str]) -> bool:
    """Whether a column is missing, or a field within it."""
    return any(each.partition(".")[0] == name for each in missing)


def _schema(handle: DeltaTable) -> pa.Schema:
    return pa.schema(handle.schema().to_arrow())


def _later(handle: DeltaTable, table: Table, how: str) -> LaterRelease:
    return LaterRelease(
        f"a later release has changed the {table.name} table at {handle.table_uri}: {how}. "
        "Use that release or a later one with this root."
    )


# --- walking two schemas --------------------------------------------------------------------------


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _pairs(
    found: Iterable[pa.Field], ours: Iterable[pa.Field]
) -> Iterator[tuple[pa.Field | None, pa.Field]]:
    """Our fields, each with the one of its name that was found."""
    by_name = {field.name: field for field in found}
    return ((by_name.get(field.name), field) for field in ours)


def _differences(
    found: Iterable[pa.Field], ours: Iterable[pa.Field], above: str = ""
) -> Iterator[str]:
    """Say which columns are there with another type."""
    for there, field in _pairs(found, ours):
        if there is not None:
            yield from _different(there.type, field.type, above + field.name)


def _different(found: pa.DataType, ours: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(found) and pa.types.is_struct(ours):
        yield from _differences(found, ours, f"{name}.")
    elif _is_list(found) and _is_list(ours):
        yield from _different(found.value_type, ours.value_type, name)
    elif plain(found) != plain(ours):
        yield f"column {name} is {plain(found)}, not {plain(ours)}"


def _missing(found: Iterable[pa.Field], ours: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Name what is ours and was not found."""
    for there, field in _pairs(found, ours):
        if there is None:
            yield above + field.name
        else:
            inner, wanted = _fields(there.type), _fields(field.type)
            yield from _missing(inner, wanted, f"{above}{field.name}.")


def _unknown_required(
    found: Iterable[pa.Field], ours: Iterable[pa.Field], above: str = ""
) -> Iterator[str]:
    """Name what was found, is not ours, and must not be null."""
    for mine, field in _pairs(ours, found):
        if mine is None:
            if not field.nullable:
                yield above + field.name
        else:
            inner, wanted = _fields(field.type), _fields(mine.type)
            yield from _unknown_required(inner, wanted, f"{above}{field.name}.")


def _fields(type_: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, or of a list's structs; none of another type."""
    if _is_list(type_):
        return _fields(type_.value_type)
    return list(type_) if pa.types.is_struct(type_) else []


def _with_fields(found: Iterable[pa.Field], ours: Iterable[pa.Field]) -> list[pa.Field]:
    mine = {field.name: field for field in ours}
    present = list(found)
    names = {field.name for field in present}
    merged = [
        field.with_type(_merged(field.type, mine[field.name].type)) if field.name in mine else field
        for field in present
    ]
    return merged + [field for name, field in mine.items() if name not in names]


def _merged(found: pa.DataType, ours: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found) and pa.types.is_struct(ours):
        return pa.struct(_with_fields(found, ours))
    if _is_list(found) and _is_list(ours):
        item = found.value_field
        return pa.list_(item.with_type(_merged(item.type, ours.value_type)))
    return found
