"""A record of a topic, as Kafka has it."""

from __future__ import annotations

from msgspec import Struct

CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Record(Struct, frozen=True, gc=False):
    """A record: its offset, timestamp (ms), key, value, headers, and what its timestamp is of.

    A record that is a row of a user's table has no headers.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = CREATE_TIME
