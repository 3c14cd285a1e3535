"""A record of a topic, with Kafka's fields."""

from __future__ import annotations

from msgspec import Struct

CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Record(Struct, frozen=True, gc=False):
    """A record: its offset, timestamp (ms), key, value, headers and timestamp type.

    A record of a user's table has no headers.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = CREATE_TIME
