"""Removal of Delta table features from a table, for example after ALTER TABLE.

One commit resets the protocol, the features' table properties and Delta's column metadata
(`pipeline.delta.protocol`), and rewrites files that do not store the table's rows as they are:
those with a deletion vector, or all if column mapping has renamed columns. If the process is
killed, the table is unchanged or plain. Rows, their order, files' modification times, version
numbers and transaction identifiers stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from msgspec import structs

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.commit import (
    Commit,
    Operation,
    add_action,
    describe_operation,
    remove_action,
)
from group_coordinator.pipeline.delta.data_file import DataFile, Layout, to_table, write_rows
from group_coordinator.pipeline.delta.log import open_log
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.delta.protocol import (
    APPEND_ONLY,
    UNDONE,
    UnsupportedTable,
    is_on,
    writer_features,
)
from group_coordinator.pipeline.delta.replay import TableState, replay
from group_coordinator.pipeline.delta.snapshot import read_checkpoint
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import open_delta, open_store
from group_coordinator.pipeline.errors import Failure, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyarrow.fs import FileSystem

    from group_coordinator.pipeline.delta.commit import AddedFile

_PHYSICAL = "delta.columnMapping.physicalName"


def asked_features(uri: str) -> tuple[str, ...]:
    """Return the features that the table uses beyond plain files, sorted, by Delta's names.

    Raises Failure, such as NoPlainCheckpoint, and OSError if the log cannot be read.
    """
    return _features(_read(uri))


def make_plain(uri: str, required: Sequence[str] = ()) -> None:
    """Remove all features from a table. No other process may write to it meanwhile.

    The rows of one file at a time are in memory. On an error the table is unchanged. Raises
    UnsupportedTable for features that cannot be removed here. Raises Failure if the table lacks one
    of the `required` columns, cannot be read, or was written by another process. Raises OSError.
    """
    state = _read(uri)
    features = _features(state)
    if not UNDONE.keys() >= {*features}:
        raise UnsupportedTable(uri, features)
    _check_columns(uri, state, required)
    try:
        masks = _masks(uri)
    except DeltaError as error:
        raise Failure(f"the table at {uri} cannot be read: {first_line(error)}") from error
    is_renamed = any(_is_renamed(field) for field in state.fields)
    now_ms = clock_ms()
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    actions = [protocol, _plain_description(state, features)]
    files, store = open_files(uri), open_store(uri)
    for added in state.files.values():
        if not is_renamed and added.deletion_vector is None:
            continue
        rows = _rows(files, added, masks.get(added.file))
        names = {_physical(field): str(field["name"]) for field in state.fields}
        old = DataFile(added.path, added.size or 0, 0, None, added.partition_values)
        removed = remove_action(old, now_ms, data_change=False)
        # Delta identifies a file by its path and its deletion vector.
        if added.deletion_vector is not None:
            removed["remove"]["deletionVector"] = added.deletion_vector
        actions.append(removed)
        if rows.num_rows:
            partition = {names[name]: value for name, value in added.partition_values.items()}
            layout = Layout(_with_names(rows, state.fields))
            new = write_rows(store, layout, partition, flushed=True)
            new = structs.replace(new, modified_ms=added.modification_time)
            actions.append(add_action(new, data_change=False))
    try:
        open_log(uri).create(
            Commit(actions, is_blind_append=False, operation=_drop_features(features)),
            state.version + 1,
        )
    except FileExistsError as error:
        raise Failure(
            f"another process wrote to {uri} during the repair: stop all processes that write to "
            "it, and repair again"
        ) from error
    clean_log(open_delta(uri))


def _drop_features(features: Sequence[str]) -> Operation:
    parameters: dict[str, str | bool] = {
        "featureName": ", ".join(features),
        "truncateHistory": False,
    }
    return describe_operation("DROP FEATURE", parameters)


def _read(uri: str) -> TableState[AddedFile]:
    columns = ("add", "metaData", "protocol")
    return replay(
        open_log(uri),
        read_checkpoint(columns),
        lambda: TableState(lambda added: added, lambda _app_id: False),
    )


def _features(state: TableState[AddedFile]) -> tuple[str, ...]:
    asked = {*writer_features(state)}
    if is_on(state.properties, "delta.appendOnly"):
        asked.add(APPEND_ONLY)
    return tuple(sorted(asked))


def _check_columns(uri: str, state: TableState[AddedFile], required: Sequence[str]) -> None:
    names = {field["name"] for field in state.fields}
    lacking = [name for name in required if name not in names]
    if lacking:
        raise Failure(
            f"the table at {uri} has no {', '.join(lacking)}: if ALTER TABLE has renamed a column, "
            "rename it back in Spark, and repair again"
        )


# --- the description ------------------------------------------------------------------------------


def _plain_description(
    state: TableState[AddedFile], features: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the table's metaData action without the features' properties and column metadata."""
    gone = ("delta.feature.", *(each for feature in features for each in UNDONE[feature]))
    kept = {name: value for name, value in state.properties.items() if not name.startswith(gone)}
    schema = msgspec.json.encode(_plain_type({"type": "struct", "fields": state.fields})).decode()
    return {
        "metaData": {**(state.meta_data or {}), "schemaString": schema, "configuration": kept},
    }


def _plain_type(type_: Any) -> Any:
    """Return a type of a Delta schema with nullable fields and without `delta.` metadata."""
    if not isinstance(type_, dict):
        return type_
    plain = {name: _plain_type(value) for name, value in type_.items()}
    if "fields" in type_:
        plain["fields"] = [
            {
                **field,
                "type": _plain_type(field["type"]),
                "nullable": True,
                "metadata": {
                    name: value
                    for name, value in field["metadata"].items()
                    if not name.startswith("delta.")
                },
            }
            for field in type_["fields"]
        ]
    return plain


# --- the rows -------------------------------------------------------------------------------------


def _masks(uri: str) -> dict[str, pa.Array]:
    """Return the selection vector of each file with a deletion vector, by path below the root.

    True marks the rows that stay.
    """
    handle = open_delta(uri)
    root = unquote(urlparse(handle.table_uri).path).rstrip("/")
    found = to_table(handle.deletion_vectors())
    paths = [unquote(urlparse(each).path) for each in found.column("filepath").to_pylist()]
    masks = found.column("selection_vector")
    return {
        path.removeprefix(f"{root}/"): masks[number].values for number, path in enumerate(paths)
    }


def _rows(files: FileSystem, added: AddedFile, mask: pa.Array | None) -> pa.Table:
    with read_whole(added.file), files.open_input_file(added.file) as opened:
        rows = pq.ParquetFile(opened).read()
    if added.deletion_vector is None:
        return rows
    if mask is None or len(mask) != rows.num_rows:
        raise Failure(f"the deletion vector of {added.file} cannot be read")
    return rows.filter(mask)


def _physical(field: Mapping[str, Any]) -> str:
    """Return a field's name in data files, its physical name in Delta's column mapping."""
    return str(field["metadata"].get(_PHYSICAL, field["name"]))


def _is_renamed(field: Mapping[str, Any]) -> bool:
    """Return whether a field, or one nested in it, has another name in data files."""
    return _physical(field) != field["name"] or any(
        map(_is_renamed, _fields(field["type"])),
    )


def _fields(type_: Any) -> list[dict[str, Any]]:
    if not isinstance(type_, dict):
        return []
    parts = [type_.get(name) for name in ("elementType", "keyType", "valueType")]
    return [*type_.get("fields", ()), *(field for part in parts for field in _fields(part))]


def _with_names(rows: pa.Table, fields: Iterable[dict[str, Any]]) -> pa.Table:
    """Return a file's rows with the table's column names in place of the physical ones."""
    named = {
        field["name"]: _named(rows.column(_physical(field)).combine_chunks(), field["type"])
        for field in fields
        if _physical(field) in rows.column_names
    }
    return pa.table(named)


def _named(values: pa.Array, type_: Any) -> pa.Array:
    if not any(map(_is_renamed, _fields(type_))):
        return values
    if pa.types.is_struct(values.type):
        there = [
            each for each in type_["fields"] if values.type.get_field_index(_physical(each)) >= 0
        ]
        return pa.StructArray.from_arrays(
            [_named(values.field(_physical(each)), each["type"]) for each in there],
            names=[each["name"] for each in there],
            mask=values.is_null(),
        )
    if pa.types.is_list(values.type):
        inner = _named(values.values, type_["elementType"])
        return pa.ListArray.from_arrays(values.offsets, inner, mask=values.is_null())
    raise Failure(f"column mapping renamed a field in {values.type}, which cannot be undone here")
