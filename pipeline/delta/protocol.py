"""The features that a table requires of its writers and readers, by Delta's names.

The commits and checksums of this package are those of a table without the features below. Files are
read as they are. If a table of this project was altered to use a feature, it is refused with the
feature's name. Source: Delta's PROTOCOL.md, "Requirements for Writers" and "Writer Version
Requirements".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta.replay import TableState

APPEND_ONLY = "appendOnly"
CHANGE_DATA_FEED = "changeDataFeed"
# The last protocol versions in which the table's properties or schema show every feature in use, as
# below.
_READER_VERSION, _WRITER_VERSION = 1, 5
_COLUMN_FEATURES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}
# Features that a table uses only if its properties or its schema show it.
_TOLD = {
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    "checkConstraints",
    "columnMapping",
    *_COLUMN_FEATURES.values(),
}


# The features that `repair` removes from a table of this project, each with the prefixes of its
# table properties (`pipeline.delta.feature_removal`). Every other feature has its own actions or
# types.
UNDONE = {
    APPEND_ONLY: ("delta.appendOnly",),
    CHANGE_DATA_FEED: ("delta.enableChangeDataFeed",),
    "checkConstraints": ("delta.constraints.",),
    "checkpointProtection": ("delta.requireCheckpointProtectionBeforeVersion",),
    "columnMapping": ("delta.columnMapping.",),
    "deletionVectors": ("delta.enableDeletionVectors",),
    "generatedColumns": (),
    "identityColumns": (),
    "inCommitTimestamp": ("delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablement"),
    "invariants": (),
    "vacuumProtocolCheck": (),
    f"writer version {_WRITER_VERSION + 1}": (),
}


class UnsupportedTable(Failure):
    """A table that requires a feature that is not implemented; the message names it."""

    def __init__(self, table: str, features: tuple[str, ...]) -> None:
        super().__init__(f"the table at {table} asks for {', '.join(features)}{way_out(features)}")


def way_out(features: Iterable[str]) -> str:
    """Return the advice to an operator for a table of this project with these features."""
    others = [f"`ALTER TABLE ... DROP FEATURE {each}`" for each in features if each not in UNDONE]
    first = f"{', '.join(others)} by Spark, and then " if others else ""
    return f": {first}`group-coordinator repair` makes it plain again"


def writer_features(table: TableState[Any]) -> tuple[str, ...]:
    """Return the features that a writer of the table must implement, sorted; () for a plain table.

    A non-nullable column counts as a use of `invariants`. A feature that the protocol lists, but
    that the table's description does not use, requires nothing of a writer.
    """
    protocol = table.protocol or {}
    listed = protocol.get("writerFeatures")
    found = {*(listed or ()), *(protocol.get("readerFeatures") or ())} - _TOLD
    if listed is None and protocol.get("minWriterVersion", 0) > _WRITER_VERSION:
        found.add(f"writer version {protocol['minWriterVersion']}")
    properties = table.properties
    if any(name.startswith("delta.constraints.") for name in properties):
        found.add("checkConstraints")
    if is_on(properties, "delta.enableChangeDataFeed"):
        found.add(CHANGE_DATA_FEED)
    if properties.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    for field in _fields({"fields": table.fields}):
        found |= {_COLUMN_FEATURES[name] for name in field["metadata"] if name in _COLUMN_FEATURES}
        if not field["nullable"]:
            found.add("invariants")
    return tuple(sorted(found))


def check_readable(handle: DeltaTable) -> None:
    """Raise UnsupportedTable unless the files of the table hold exactly its rows.

    Files of a table with deletion vectors hold deleted rows. Files of a table with column mapping
    have other column names.
    """
    protocol = handle.protocol()
    if protocol.min_reader_version > _READER_VERSION:
        features = tuple(sorted(protocol.reader_features or ()))
        named = features or (f"reader version {protocol.min_reader_version}",)
        raise UnsupportedTable(handle.table_uri, named)


def check_writable(uri: str, features: Iterable[str], rewrites_rows: bool = False) -> None:
    """Raise UnsupportedTable if this package cannot write a table with these features.

    A commit that only adds files, or only removes them, needs no change data files: the feed is
    read from its files. A commit that `rewrites_rows` would have to write them.
    """
    asked = set(features)
    if not rewrites_rows:
        asked.discard(CHANGE_DATA_FEED)
    if asked:
        raise UnsupportedTable(uri, tuple(sorted(asked)))


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Return whether a property of a table is true."""
    return properties.get(name, "false").lower() == "true"


def _fields(type_: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of a schema's JSON, including those nested in fields, arrays and maps."""
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(type_.get(part))
