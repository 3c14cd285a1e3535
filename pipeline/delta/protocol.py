"""What a table asks of its writers and readers beyond plain files, by Delta's names.

The commits and checksums that this package writes are those of a table without any of the features
below; the files that it reads itself are taken as they are. A table of ours with a feature, which
somebody has altered, is refused by the feature's name.
Source: Delta's PROTOCOL.md, "Requirements for Writers" and "Writer Version Requirements".
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
# The last versions of the protocol in which every feature that is in use is told by the table's
# properties or its schema, as below.
_READER_VERSION, _WRITER_VERSION = 1, 5
_COLUMN_FEATURES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}
# Features that a table uses only if its properties or its schema say so.
_TOLD = {
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    "checkConstraints",
    "columnMapping",
    *_COLUMN_FEATURES.values(),
}


# The features of which `repair` rids a table of ours (`pipeline.upkeep.plain`), each with how the
# table's properties begin that are its own. Every other one has actions, or types, of its own.
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
    """A table that asks for something that is not implemented; the message names it."""

    def __init__(self, table: str, features: tuple[str, ...]) -> None:
        super().__init__(f"the table at {table} asks for {', '.join(features)}{way_out(features)}")


def way_out(features: Iterable[str]) -> str:
    """Return what an operator does about a table of ours with these features, if anything."""
    others = [f"`ALTER TABLE ... DROP FEATURE {each}`" for each in features if each not in UNDONE]
    first = f"{', '.join(others)} by Spark, and then " if others else ""
    return f": {first}`group-coordinator repair` makes it plain again"


def writer_features(table: TableState[Any]) -> tuple[str, ...]:
    """Return the features that a writer of the table must implement, sorted; () for a plain table.

    A column that must not be null counts as one of `invariants`. A feature that the protocol lists
    and that nothing in the table's description uses asks nothing of a writer.
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
    """Raise UnsupportedTable unless every row of the table is in its files as it stands there.

    Files of a table with deletion vectors hold deleted rows; those of a table with column mapping
    have other column names.
    """
    protocol = handle.protocol()
    if protocol.min_reader_version > _READER_VERSION:
        features = tuple(sorted(protocol.reader_features or ()))
        named = features or (f"reader version {protocol.min_reader_version}",)
        raise UnsupportedTable(handle.table_uri, named)


def check_writable(uri: str, features: Iterable[str], rewrites_rows: bool = False) -> None:
    """Raise UnsupportedTable if a table with these features may not be written here.

    The change data feed of a commit that only adds files, or only removes them, is read from these;
    a commit that `rewrites_rows` would have to write it.
    """
    asked = set(features)
    if not rewrites_rows:
        asked.discard(CHANGE_DATA_FEED)
    if asked:
        raise UnsupportedTable(uri, tuple(sorted(asked)))


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Whether a property of a table is true."""
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
