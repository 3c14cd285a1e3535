"""The decoder of the records in a produced batch.

Source: Apache Kafka, DefaultRecord.
"""

from __future__ import annotations

from group_coordinator.pipeline.topics import NewBatch

# The limit of records and headers in a batch. A compressed header may take less than a bit. In
# memory, each takes about `PIECE_BYTES` in addition to its content.
_MOST_PIECES = 500_000
PIECE_BYTES = 100
_Headers = tuple[tuple[str, "bytes | None"], ...]


class TornRecords(Exception):
    """Error for bytes that are not the records that the batch header declares."""


class TooMany(Exception):
    """Error for a batch with more records and headers than allowed."""


def take_apart(partition: int, data: bytes, count: int, base_time: int) -> tuple[NewBatch, int]:
    """Decode the records; return them, and the number of records plus headers.

    Raises TornRecords and TooMany. `base_time` is in ms.
    """
    try:
        batch, pieces, end = _take_apart(partition, data, count, base_time)
    except (IndexError, ValueError) as error:
        raise TornRecords(f"a record is torn: {error}") from error
    if end != len(data):
        raise TornRecords(f"{len(data) - end} bytes follow the last record")
    return batch, pieces


def _take_apart(
    partition: int, data: bytes, count: int, base_time: int
) -> tuple[NewBatch, int, int]:
    """Return the records, the number of records plus headers, and the end position.

    Raises IndexError and ValueError for invalid bytes. One-byte varints are decoded inline, because
    nearly all have one byte, and a call takes as long as the rest of a record.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    headers: list[_Headers] = []
    at, pieces = 0, count
    # A count that exceeds the bytes fails below, when the bytes end.
    _check(min(count, len(data)))
    for number in range(count):
        length, at = _number(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise ValueError(f"record {number} is longer than its batch")
        # The attributes, which are unused in this message format.
        at += 1
        delta, at = _number(data, at)
        times.append(base_time + delta)
        offset, at = _number(data, at)
        if offset != number:
            raise ValueError(f"record {number} has the offset {offset}")
        for found in (keys, values):
            byte = data[at]
            if byte < 0x80:
                at += 1
                size = (byte >> 1) ^ -(byte & 1)
            else:
                size, at = _number(data, at)
            if size < 0:
                found.append(None)
            else:
                found.append(data[at : at + size])
                at += size
        if data[at] == 0:
            at += 1
            headers.append(())
        else:
            size, at = _number(data, at)
            if not 0 <= size <= end - at:
                raise ValueError(f"{size} headers")
            pieces += size
            _check(pieces)
            some, at = _headers(data, at, end, size)
            headers.append(some)
        if at != end:
            raise ValueError(f"record {number} ends at {at}, and says {end}")
    if pieces == count:
        return NewBatch(partition, keys, values, times), pieces, at
    return NewBatch(partition, keys, values, times, headers), pieces, at


def _check(pieces: int) -> None:
    if pieces > _MOST_PIECES:
        raise TooMany(f"it has more than {_MOST_PIECES} records and headers")


def _headers(data: bytes, at: int, end: int, count: int) -> tuple[_Headers, int]:
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _number(data, at)
        if size < 0 or at + size > end:
            raise ValueError("a header's key is longer than its record")
        key = data[at : at + size].decode(errors="replace")
        at += size
        size, at = _number(data, at)
        if at + size > end:
            raise ValueError("a header's value is longer than its record")
        found.append((key, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return tuple(found), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag-encoded varint and its end position."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")
