"""Numbers, times and durations in words, for pages and for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

# How a state or a verdict looks: good, bad or neither.
TONES = {
    "Stable": "ok",
    "PreparingRebalance": "warn",
    "CompletingRebalance": "warn",
    "Empty": "mute",
    "Dead": "mute",
    "OK": "ok",
    "lagging": "warn",
    "stalled": "bad",
    "stopped": "bad",
}
# What a verdict tells of a consumer, by the rules of the view `verdicts`.
VERDICTS = {
    "OK": "it reads, and keeps up or catches up",
    "lagging": "it reads less than comes: its lag grows, as a line through its commits has it",
    "stalled": "it commits the same offset again and again, though there are records after it",
    "stopped": "it commits nothing any more, though there are records that it has not read",
}
UNKNOWN = "\N{EN DASH}"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_BYTES_SHOWN = 24
_ITEMS_SHOWN = 100
_CLIPPED = 500
# A name of more characters is broken into lines, so that a table's other columns stay in sight.
_LONG = 40


def brief(value: bytes | Sequence[Any]) -> str:
    """Bytes or a list in few words: bytes as their number and their first ones in hexadecimal."""
    if isinstance(value, bytes):
        more = " …" if len(value) > _BYTES_SHOWN else ""
        return f"{len(value)} bytes {value[:_BYTES_SHOWN].hex()}{more}" if value else "0 bytes"
    more = f" and {len(value) - _ITEMS_SHOWN} more" if len(value) > _ITEMS_SHOWN else ""
    return ", ".join(map(str, value[:_ITEMS_SHOWN])) + more


def clip(text: Any) -> str:
    """A text that a client chose, to a length that a page can bear: it may have megabytes."""
    said = str(text)
    return said if len(said) <= _CLIPPED else f"{said[:_CLIPPED]} … ({len(said):,} characters)"


def width(text: Any) -> str:
    """The class of a table's cell, by the length of the name that is in it."""
    return "long" if len(str(text or "")) > _LONG else "short"


def number(value: int | float | None) -> str:
    """A count with its thousands apart; a dash where it is not known."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def utc(at: datetime | None) -> str:
    """A time of the tables, which is UTC, to the second."""
    return UNKNOWN if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def iso(at: datetime) -> str:
    """A time of the tables for a `<time>` element."""
    return at.isoformat(timespec="milliseconds") + "Z"


def ago(at: datetime | None, now_ms: int) -> str:
    """How long before `now_ms` it was, in one unit; a time after it is "now"."""
    if at is None:
        return UNKNOWN
    seconds = now_ms / 1000 - at.replace(tzinfo=UTC).timestamp()
    return "now" if seconds < 1 else f"{duration(seconds, units=1)} ago"


def duration(seconds: float | None, units: int = 2) -> str:
    """A duration in its largest units: `2 min 5 s`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    said: list[str] = []
    rest = int(seconds)
    for size, name in _UNITS:
        count, rest = divmod(rest, size)
        if count or (said and rest):
            said.append(f"{count} {name}")
        if len(said) == units:
            break
    return " ".join(part for part in said if not part.startswith("0 ")) or "0 s"


def milliseconds(ms: int | None) -> str:
    """Milliseconds as a duration; below a second as they are."""
    if ms is None:
        return UNKNOWN
    return f"{ms} ms" if ms < 1000 else duration(ms / 1000)


def tone(name: str | None) -> str:
    """How a state, a verdict or an error looks."""
    return TONES.get(name or "", "mute")


def spans(numbers: Iterable[int]) -> str:
    """Partition numbers in few words: `0-5, 8`."""
    said: list[str] = []
    first = last = None
    for number in [*sorted(numbers), None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if last is not None:
            said.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return ", ".join(said)
