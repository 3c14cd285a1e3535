"""Control events: events that a coordinator sends to a group of the same stream.

A control event arrives through the stream as requests do, and is executed before the requests of
its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from group_coordinator.schemas.decoding import DECODE_ERRORS
from group_coordinator.schemas.records import CoordinatorRecord

# The beginning of every control event's JSON; no request event has a field of that name.
PREFIX = '{"control"'
UNLOAD_EVENT = f'{PREFIX}:"unload"}}'
WAKE_EVENT = f'{PREFIX}:"wake"}}'


class Load(Struct, frozen=True, tag_field="control", tag="load"):
    """Restore the group from these rows of the offsets topic.

    `log_ms` is the newest time in the partition's log (ms), None if unknown.
    """

    records: list[msgspec.Raw]
    log_ms: int | None = None


class Remember(Struct, frozen=True, tag_field="control", tag="remember"):
    """Ignore requests with these digests: they were answered before the take-over.

    `log_ms` is as in `Load`.
    """

    digests: bytes
    log_ms: int | None = None


class Unload(Struct, frozen=True, tag_field="control", tag="unload"):
    """Unload the group: its partition moves to another owner."""


class Wake(Struct, frozen=True, tag_field="control", tag="wake"):
    """No change: the event only makes Spark run a new stream.

    Spark runs no batch and no timer of a stream before its first event.
    """


class Recorded(Struct, frozen=True, tag_field="control", tag="recorded"):
    """A request with records in the log: a coordinator was killed before it answered the request.

    `records` are the rows of the offsets topic that carry the request's id
    (`coordinator.group.recorded`).
    """

    records: list[msgspec.Raw]
    request: msgspec.Raw


Control = Load | Remember | Unload | Wake | Recorded

_encode = msgspec.json.Encoder().encode
_decode: Callable[[str], Control] = msgspec.json.Decoder(Control).decode
_decode_record = msgspec.json.Decoder(CoordinatorRecord).decode


def remember_event(digests: bytes, log_ms: int | None = None) -> str:
    """Return the event that makes a group remember request digests (`coordinator.group.dedup`)."""
    return _encode(Remember(digests, log_ms)).decode()


def recorded_event(request: str, records: str) -> str:
    """Return a `Recorded` event of a request's JSON and its records' JSON, joined by commas."""
    return f'{PREFIX}:"recorded","records":[{records}],"request":{request}}}'


def is_control(text: str) -> bool:
    """Whether an event of the stream is a control event, not a client's request."""
    return text.startswith(PREFIX)


def request_of(text: str) -> str | None:
    """Return the request of an event as JSON; None for a control event without a request."""
    if not is_control(text):
        return text
    control = decode_control(text)
    return bytes(control.request).decode() if isinstance(control, Recorded) else None


def decode_control(text: str) -> Control:
    """Decode a control event. Raises msgspec.MsgspecError, which indicates a bug."""
    return _decode(text)


def readable_records(rows: Iterable[msgspec.Raw]) -> tuple[list[CoordinatorRecord], list[str]]:
    """Decode rows; return the records, and an error text for each row that is not a record."""
    records, problems = [], []
    for row in rows:
        try:
            records.append(_decode_record(row))
        except DECODE_ERRORS as error:
            problems.append(str(error))
    return records, problems
