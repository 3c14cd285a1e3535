"""Offsets of the stream, as Spark logs them, and the position at which a stream begins."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.pipeline.delta import Position
from group_coordinator.pipeline.stream.selection import Selection
from group_coordinator.schemas.decoding import DECODE_ERRORS


class Offset(Struct, frozen=True):
    """The position of the stream in its two tables, as Spark logs it in JSON.

    An offset at the end of a batch also fixes what a repeated batch decides. `run`, the number of
    the query's run that planned it, gives its settings (`pipeline.stream.pinned_settings`).
    `selection` names the partitions that it reads. `max_request_bytes` is the limit of a request,
    None if an earlier release planned the batch. `missed` maps gained partitions to the first
    version of `requests` that the batch reads for them (`Selection.missed_by`).
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection
    max_request_bytes: int | None = None
    missed: dict[int, int] = {}


class Planned(Struct, frozen=True):
    """The newest batch that a streaming checkpoint has planned, and its end offset as JSON.

    `query_id` identifies the query's commits; None if the checkpoint has no query id.
    """

    batch_id: int
    offset: str
    query_id: str | None = None


def from_plain(plain: dict[str, Any]) -> Offset:
    """Convert decoded JSON to an offset. Raises msgspec.ValidationError."""
    return msgspec.convert(plain, Offset, str_keys=True)


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Decode an offset as Spark reports it; return None for one of another source or release."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return None if text is None else from_plain(text)
    except DECODE_ERRORS:
        return None


class Bootstrap(Struct, frozen=True):
    """The position at which a new streaming checkpoint begins.

    It begins with the bootstrap, the table at `uri` of events that load the groups, from `version`
    on. It continues with `requests` from `first_version` on, the first that the bootstrap does not
    cover. `state_version` is the format of the groups' states in the checkpoint. `requests_table`
    is the `table_number` of `requests`; None if an earlier release wrote the bootstrap.
    """

    uri: str
    version: int
    first_version: int
    state_version: int = VERSION
    requests_table: int | None = None


def table_number(table_id: str) -> int:
    """Return a number that identifies a table by its id; a recreated table has another one.

    The number is 48 bits of a hash, because a bootstrap stores it as a transaction's version.
    """
    return int.from_bytes(sha256(table_id.encode()).digest()[:6], "big")
