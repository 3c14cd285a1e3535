"""Position of a stream: where it begins, and how far it has read its two tables."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.pipeline.delta import Position
from group_coordinator.pipeline.stream.selection import Selection
from group_coordinator.schemas.decoding import DECODE_ERRORS


class Offset(Struct, frozen=True):
    """The position of a stream, as Spark's log of offsets stores it in JSON.

    The offset at the end of a batch also has the run of the query that planned the batch, and the
    batch's selection. It has the batch's `max.request.size` as well, None if an earlier release
    planned the batch. So a batch that is run again has the same events and refuses the same
    requests. It is decided by the same settings (`pipeline.stream.pinned_settings`), even if the
    node owns other partitions now.

    `missed` is the result of `Selection.missed_by` for the batch, which has these requests as well.
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection
    max_request_bytes: int | None = None
    missed: dict[int, int] = {}


class Planned(Struct, frozen=True):
    """The newest batch that a streaming checkpoint has planned, and its end, as JSON.

    `query_id` is the id under which the query writes its batches; None if the checkpoint has none.
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

    `uri` is the bootstrap's table, and `version` is its first version that the stream reads.
    `first_version` is the first version of `requests` that the bootstrap does not cover.
    `state_version` is the format version of the groups' states in the checkpoint. `requests_table`
    is the number of `requests`, which is another one if the table was made again. It is None if an
    earlier release wrote the bootstrap.
    """

    uri: str
    version: int
    first_version: int
    state_version: int = VERSION
    requests_table: int | None = None
