"""Schema evolution: tables with columns that another release created or changed.

A release only adds nullable columns, and nullable fields at the end of a struct. Therefore:

* A table of an earlier release lacks columns. A writer that opens it adds them, in one commit that
  changes only the schema. A reader reads them as null (`with_columns`).
* A table of a later release has more columns, which are null in rows of this release.
* If a later release cannot share a table with this one, it adds a column that is not nullable, or
  raises the number in the table property `FORMAT_PROPERTY`. This release then refuses the table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import CommitFailedError

from group_coordinator.pipeline.clock import back_off
from group_coordinator.pipeline.delta import ATTEMPTS, dataset_of, refresh
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.format import FORMAT, FORMAT_PROPERTY, is_known_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltalake import DeltaTable
    from pyarrow import dataset as ds

    from group_coordinator.schemas.tables import Table

log = logging.getLogger(__name__)


class SchemaMismatch(Failure):
    """A table with missing or different columns; the message names them."""


class LaterRelease(Failure):
    """A table that this release cannot use after a change by a later one; the message says why."""


def check_columns(handle: DeltaTable, table: Table) -> list[str]:
    """Return the columns of this release that the table lacks; a struct's field is `struct.field`.

    Raises SchemaMismatch if a column has another type, if a column of every release is missing, or
    if the partitioning differs. Raises LaterRelease for a table of a later format.
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
    """Raise LaterRelease if this release does not know the format in the table's properties."""
    properties = handle.metadata().configuration
    if not is_known_format(properties):
        found_format = properties[FORMAT_PROPERTY]
        raise _later(
            handle, table, f"it has format {found_format}, and this release knows {FORMAT}"
        )


def add_missing_columns(handle: DeltaTable, table: Table) -> None:
    """Add the columns of this release that the table lacks, and log their names.

    Other processes may append or add the same columns meanwhile. Raises what `check_columns`
    raises. Raises LaterRelease if the table has an unknown column that is not nullable. Raises
    CommitFailedError after `ATTEMPTS` conflicts with other commits.
    """
    for attempt in range(ATTEMPTS):
        missing = check_columns(handle, table)
        found = _schema(handle)
        unknown = list(_unknown_required(found, table.schema))
        if unknown:
            raise _later(handle, table, f"{', '.join(unknown)} must not be null")
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
            log.info("added columns to the %s table of an earlier release: %s", table.name, names)
            return


def dataset(handle: DeltaTable, table: Table) -> ds.Dataset:
    """Return the table's rows; columns of this release that the table lacks are null.

    Raises what `check_columns` raises.
    """
    rows = dataset_of(handle)
    if not check_columns(handle, table):
        return rows
    wanted = with_columns(rows.schema, table.schema)
    # `rows.replace_schema` refuses a struct that lacks a field.
    return type(rows)(rows.get_fragments(), wanted, rows.format, rows.filesystem)


def with_columns(found: pa.Schema, ours: pa.Schema) -> pa.Schema:
    """Return `found` followed by the columns of `ours` that it lacks; structs are merged alike."""
    return pa.schema(_with_fields(found, ours))


def plain(type_: pa.DataType) -> str:
    """Return a type as text, without nullability and item names, which differ between engines."""
    if pa.types.is_struct(type_):
        return "struct<" + ", ".join(f"{f.name}: {plain(f.type)}" for f in type_) + ">"
    if _is_list(type_):
        return f"array<{plain(type_.value_type)}>"
    return {"string_view": "string", "binary_view": "binary"}.get(str(type_), str(type_))


def _top(name: str, missing: list[str]) -> bool:
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
    """Return the fields of `ours`, each preceded by `found`'s field of the same name or None."""
    by_name = {field.name: field for field in found}
    return ((by_name.get(field.name), field) for field in ours)


def _differences(
    found: Iterable[pa.Field], ours: Iterable[pa.Field], above: str = ""
) -> Iterator[str]:
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
    for there, field in _pairs(found, ours):
        if there is None:
            yield above + field.name
        else:
            inner, wanted = _fields(there.type), _fields(field.type)
            yield from _missing(inner, wanted, f"{above}{field.name}.")


def _unknown_required(
    found: Iterable[pa.Field], ours: Iterable[pa.Field], above: str = ""
) -> Iterator[str]:
    """Yield the names of the non-nullable fields that only `found` has."""
    for mine, field in _pairs(ours, found):
        if mine is None:
            if not field.nullable:
                yield above + field.name
        else:
            inner, wanted = _fields(field.type), _fields(mine.type)
            yield from _unknown_required(inner, wanted, f"{above}{field.name}.")


def _fields(type_: pa.DataType) -> list[pa.Field]:
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
