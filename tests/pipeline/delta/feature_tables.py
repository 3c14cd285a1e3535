"""Tables that ask for more than plain appends, each made by a log that is written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

METADATA = {
    "id": "8a7f3c52-0f5e-4a56-9a54-2f0f4f6f5a11",
    "format": {"provider": "parquet", "options": {}},
    "partitionColumns": [],
    "configuration": {},
    "createdTime": 1_700_000_000_000,
}


def column(name: str = "n", nullable: bool = True, **metadata: object) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": nullable, "metadata": metadata}


def protocol(reader: int, writer: int, *features: str) -> dict[str, Any]:
    """A protocol that lists the features for readers and writers, if there are any."""
    versions: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if features:
        versions["writerFeatures"] = list(features)
        if reader == 3:
            versions["readerFeatures"] = list(features)
    return versions


def create(
    folder: Path,
    versions: dict[str, Any],
    properties: dict[str, str] | None = None,
    fields: list[dict[str, Any]] | None = None,
    **more: object,
) -> Path:
    """Write version 0 of a table; `more` are further fields of its metaData."""
    schema = json.dumps({"type": "struct", "fields": fields or [column()]})
    told = {**METADATA, "configuration": properties or {}, "schemaString": schema, **more}
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    actions = [{"protocol": versions}, {"metaData": told}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return folder


_BELOW_TEN = json.dumps({"expression": {"expression": "n < 10"}})
_MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}

# What a table asks for, by Delta's name: the arguments of `create`.
FEATURES: dict[str, tuple[Any, ...]] = {
    "deletionVectors": (
        protocol(3, 7, "deletionVectors"),
        {"delta.enableDeletionVectors": "true"},
    ),
    "columnMapping": (
        protocol(2, 5),
        {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"},
        [column(**_MAPPED)],
    ),
    "changeDataFeed": (protocol(1, 4), {"delta.enableChangeDataFeed": "true"}),
    "generatedColumns": (
        protocol(1, 4),
        {},
        [column(), column("next", **{"delta.generationExpression": "n + 1"})],
    ),
    "checkConstraints": (protocol(1, 3), {"delta.constraints.small": "n < 10"}),
    "invariants": (protocol(1, 2), {}, [column(**{"delta.invariants": _BELOW_TEN})]),
    "rowTracking": (
        protocol(1, 7, "rowTracking", "domainMetadata"),
        {"delta.enableRowTracking": "true"},
    ),
    "inCommitTimestamp": (
        protocol(1, 7, "inCommitTimestamp"),
        {"delta.enableInCommitTimestamps": "true"},
    ),
    "checkpointProtection": (
        protocol(1, 7, "checkpointProtection"),
        {"delta.requireCheckpointProtectionBeforeVersion": "11"},
    ),
    "writer version 6": (protocol(1, 6),),
}
