"""Delta table features that a table requires of its writers and readers.

This package writes plain tables only. A table that uses one of these features, for example after
ALTER TABLE, is refused with the feature's name. Source: Delta's PROTOCOL.md, "Requirements for
Writers" and "Writer Version Requirements".
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
# The highest protocol versions without feature lists. A table of such a version shows each feature
# that it uses in its properties or its schema.
_READER_VERSION, _WRITER_VERSION = 1, 5
_COLUMN_FEATURES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}
# Features that may be listed but unused: only the properties or the schema show their use.
_TOLD = {
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    "checkConstraints",
    "columnMapping",
    *_COLUMN_FEATURES.values(),
}


# The features that `group-coordinator repair` removes, each with the prefixes of its table
# properties (`pipeline.delta.feature_removal`). The other features have their own actions or types.
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
    """A table that uses features which this package does not implement; the message names them."""

    def __init__(self, table: str, features: tuple[str, ...]) -> None:
        drops = [
            f"`ALTER TABLE ... DROP FEATURE {name}`" for name in features if name not in UNDONE
        ]
        first = f"{', '.join(drops)} in Spark, and then " if drops else ""
        super().__init__(
            f"the table at {table} uses {', '.join(features)}, which is not supported: run {first}"
            "`group-coordinator repair`"
        )


def writer_features(table: TableState[Any]) -> tuple[str, ...]:
    """Return the features that a writer of the table must implement, sorted; () for a plain table.

    A non-nullable column counts as a use of `invariants`. A feature that the protocol lists but no
    property or column uses requires nothing of a writer.
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
    """Raise UnsupportedTable unless the data files hold exactly the table's rows.

    With deletion vectors, files also hold deleted rows. With column mapping, columns have other
    names in the files.
    """
    protocol = handle.protocol()
    if protocol.min_reader_version > _READER_VERSION:
        features = tuple(sorted(protocol.reader_features or ()))
        named = features or (f"reader version {protocol.min_reader_version}",)
        raise UnsupportedTable(handle.table_uri, named)


def check_writable(uri: str, features: Iterable[str], rewrites_rows: bool = False) -> None:
    """Raise UnsupportedTable if this package cannot write a table with these features.

    With the change data feed, a commit that only adds or only removes files is allowed: Delta
    derives the changes from these files. A commit that `rewrites_rows` would need separate change
    data files.
    """
    asked = set(features)
    if not rewrites_rows:
        asked.discard(CHANGE_DATA_FEED)
    if asked:
        raise UnsupportedTable(uri, tuple(sorted(asked)))


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Return whether a boolean table property is set to true."""
    return properties.get(name, "false").lower() == "true"


def _fields(type_: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(type_.get(part))
