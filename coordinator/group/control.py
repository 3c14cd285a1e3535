"""Control events: what a coordinator tells its own stream about a group.

A control event arrives through the stream as requests do, and is carried out before the requests of
its batch: the group is restored from its records, told what was answered, or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from group_coordinator.schemas.records import CoordinatorRecord
from group_coordinator.schemas.unreadable import UNREADABLE

# How every control event's JSON begins: no request event has a field of that name.
PREFIX = '{"control"'
UNLOAD_EVENT = f'{PREFIX}:"unload"}}'
WAKE_EVENT = f'{PREFIX}:"wake"}}'


class Load(Struct, frozen=True, tag_field="control", tag="load"):
    """Restore the group from these rows of the offsets topic.

    `log_ms` is the newest time that the partition's log tells, None if none is known.
    """

    records: list[msgspec.Raw]
    log_ms: int | None = None


class Remember(Struct, frozen=True, tag_field="control", tag="remember"):
    """Do not decide requests with these digests again: they were answered before the take-over.

    `log_ms` is as in `Load`.
    """

    digests: bytes
    log_ms: int | None = None


class Unload(Struct, frozen=True, tag_field="control", tag="unload"):
    """Give the group up: its partition has another owner."""


class Wake(Struct, frozen=True, tag_field="control", tag="wake"):
    """Leave the group as it is.

    The event wakes a new stream: Spark runs no batch of it, and no timer, before an event comes.
    """


class Recorded(Struct, frozen=True, tag_field="control", tag="recorded"):
    """A request whose records stand, with these rows of the offsets topic that carry its id.

    A coordinator was killed before it could answer the request (`coordinator.group.recorded`).
    """

    records: list[msgspec.Raw]
    request: msgspec.Raw


Control = Load | Remember | Unload | Wake | Recorded

_encode = msgspec.json.Encoder().encode
_decode: Callable[[str], Control] = msgspec.json.Decoder(Control).decode
_decode_record = msgspec.json.Decoder(CoordinatorRecord).decode


def remember_event(digests: bytes, log_ms: int | None = None) -> str:
    """The event that has a group remember digests of requests (`coordinator.group.dedup`)."""
    return _encode(Remember(digests, log_ms)).decode()


def recorded_event(request: str, records: str) -> str:
    """The event of a request, its JSON, with its records, their JSON joined by commas."""
    return f'{PREFIX}:"recorded","records":[{records}],"request":{request}}}'


def is_control(text: str) -> bool:
    """Whether an event of the stream is the coordinator's own, and no sender's."""
    return text.startswith(PREFIX)


def request_of(text: str) -> str | None:
    """The request, as JSON, of an event of the stream; None if the event has none."""
    if not is_control(text):
        return text
    control = decode_control(text)
    return bytes(control.request).decode() if isinstance(control, Recorded) else None


def decode_control(text: str) -> Control:
    """Read a control event. Raises msgspec.MsgspecError, which only a bug of ours can cause."""
    return _decode(text)


def readable_records(rows: Iterable[msgspec.Raw]) -> tuple[list[CoordinatorRecord], list[str]]:
    """The rows that are records, and for each other row why it is not."""
    records, problems = [], []
    for row in rows:
        try:
            records.append(_decode_record(row))
        except UNREADABLE as error:
            problems.append(str(error))
    return records, problems
