"""What a table asks of its writers and readers beyond plain files, by Delta's names.

The commits and checksums that this package writes itself are those of a table without any of the
features below; the files that it reads itself are taken as they are. A table with a feature is
written by delta-rs, which implements the feature or refuses the commit by its name.
Source: Delta's PROTOCOL.md, "Requirements for Writers" and "Writer Version Requirements".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

APPEND_ONLY = "appendOnly"
# Features that ask nothing of an append as it is written here.
_IMPLEMENTED = {APPEND_ONLY}
# The last versions of the protocol in which every feature that is in use is told by the table's
# properties or its schema, as below.
_READER_VERSION, _WRITER_VERSION = 1, 5
_COLUMN_FEATURES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}


class UnsupportedTable(Failure):
    """A table that asks for something that is not implemented; the message names it."""

    def __init__(self, table: str, features: tuple[str, ...]) -> None:
        super().__init__(f"the table at {table} asks for {', '.join(features)}")


def writer_features(handle: DeltaTable) -> tuple[str, ...]:
    """Return the features that a writer of the table must implement, sorted; () for a plain table.

    A column that must not be null counts as one of `invariants`.
    """
    protocol = handle.protocol()
    properties = handle.metadata().configuration
    found = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    if protocol.writer_features is None and protocol.min_writer_version > _WRITER_VERSION:
        found.add(f"writer version {protocol.min_writer_version}")
    if any(name.startswith("delta.constraints.") for name in properties):
        found.add("checkConstraints")
    if _is_on(properties, "delta.enableChangeDataFeed"):
        found.add("changeDataFeed")
    if properties.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    for field in _fields(json.loads(handle.schema().to_json())):
        found |= {_COLUMN_FEATURES[name] for name in field["metadata"] if name in _COLUMN_FEATURES}
        if not field["nullable"]:
            found.add("invariants")
    return tuple(sorted(found - _IMPLEMENTED))


def check_readable(handle: DeltaTable) -> None:
    """Raise UnsupportedTable unless every row of the table is in its files as it stands there.

    Files of a table with deletion vectors hold deleted rows; those of a table with column mapping
    have other column names.
    """
    protocol = handle.protocol()
    if protocol.min_reader_version > _READER_VERSION:
        features = tuple(sorted(protocol.reader_features or ()))
        named = features or (f"reader version {protocol.min_reader_version}",)
        raise UnsupportedTable(handle.table_uri, named)


def check_removable(handle: DeltaTable) -> None:
    """Raise UnsupportedTable if rows of the table must not be removed."""
    if _is_on(handle.metadata().configuration, "delta.appendOnly"):
        raise UnsupportedTable(handle.table_uri, (APPEND_ONLY,))


def _is_on(properties: dict[str, str], name: str) -> bool:
    return properties.get(name, "false").lower() == "true"


def _fields(type_: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of a schema's JSON, also those within other fields, arrays and maps."""
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(type_.get(part))
