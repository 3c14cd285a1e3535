"""Oversized requests, each in a file of one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from group_coordinator.schemas.tables import REQUESTS
from tests.trials.malformed.cells import array_of
from tests.trials.malformed.files import Owed, as_read

_MEGABYTE = 1 << 20
_METADATA = 10 * _MEGABYTE
_PARTITIONS = 100_000
_MEMBERS = 100_000
_PROTOCOLS = 20_000


def huge_files(number: int) -> Iterator[tuple[pa.Table, Owed]]:
    """Yield a file of each kind, each for a separate group; `number` distinguishes calls."""
    for kind, row in enumerate(_rows()):
        unique = b"huge-%d-%d" % (number, kind)
        row = {**row, "request_id": unique + row.get("request_id", b"")}
        row["group_id"] = unique + row.get("group_id", b"")
        columns = [array_of([row.get(field.name)], field.type) for field in REQUESTS.schema]
        key = (as_read(row["group_id"]), as_read(row["request_id"]))
        yield pa.table(columns, schema=REQUESTS.schema), Owed({key: as_read(row["api"])})


def _rows() -> Iterator[dict[str, Any]]:
    partitions = [
        {"partition_index": number, "committed_offset": 1} for number in range(_PARTITIONS)
    ]
    yield _row("offset_commit", topics=[{"name": b"t", "partitions": partitions}])
    indexes = [{"name": b"t", "partition_indexes": range(_PARTITIONS)}]
    yield _row("offset_fetch", topics=indexes)
    deleted = [{"name": b"t", "partitions": list(range(_PARTITIONS)) * 2}]
    yield _row("offset_delete", topics=deleted)
    for text in (b"\x01", "\U0010ffff".encode(), b'"'):
        metadata = text * (_METADATA // len(text))
        committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
        yield _row("offset_commit", topics=[{"name": b"t", "partitions": [committed]}])
    topics = [{"name": b"t" * 200, "partitions": []}] * _PARTITIONS
    yield _row("offset_commit", topics=topics)
    yield _row("leave_group", members=[{"member_id": b"m", "reason": b"r"}] * _MEMBERS)
    protocols = [{"name": b"range", "metadata": bytes(100)}] * _PROTOCOLS
    joined = {"session_timeout_ms": 6_000, "protocol_type": b"consumer", "protocols": protocols}
    yield {**_row("join_group", member_id=b"", **joined), "api_version": 3}
    assignments = [{"member_id": b"m", "assignment": bytes(100)}] * _MEMBERS
    yield _row("sync_group", generation_id=1, member_id=b"m", assignments=assignments)
    long = b"\x7f\n" * _MEGABYTE
    yield _row("heartbeat", generation_id=1, member_id=long)
    yield {**_row("heartbeat", generation_id=1, member_id=b"m"), "api": long}
    yield {**_row("describe_groups"), "group_id": long}
    yield {**_row("describe_groups"), "request_id": long}


def _row(api: str, **body: Any) -> dict[str, Any]:
    return {"api": api.encode(), api: body}
