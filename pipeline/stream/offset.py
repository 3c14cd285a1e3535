"""How far a stream has read its two tables: what Spark's log of offsets keeps of a batch."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from pipeline.delta.tail import Position


class Offset(Struct, frozen=True):
    """How far a stream has read, as Spark's log of offsets keeps it in JSON."""

    bootstrap: Position
    requests: Position


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Read an offset of this source as Spark reports it; None for another source's offset."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return msgspec.convert(text, Offset)
    except msgspec.MsgspecError:
        return None
