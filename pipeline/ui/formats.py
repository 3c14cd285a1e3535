"""The formats of numbers, times and durations, for pages and for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

# The tones of states and verdicts.
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
# The meaning of each verdict, by the rules of the view `verdicts`.
VERDICTS = {
    "OK": "it reads, and keeps up or catches up",
    "lagging": "it reads fewer records than arrive: its lag grows, by a line through its commits",
    "stalled": "it commits the same offset again and again, although there are records after it",
    "stopped": "it commits no more, although there are records that it has not read",
}
UNKNOWN = "\N{EN DASH}"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_BYTES_SHOWN = 24
_ITEMS_SHOWN = 100
_CLIPPED = 500
# A longer name is broken into lines, to keep the other columns of a table visible.
_LONG = 40


def brief(value: bytes | Sequence[Any]) -> str:
    """Shorten bytes to their number and first bytes in hexadecimal, a list to its first items."""
    if isinstance(value, bytes):
        more = " …" if len(value) > _BYTES_SHOWN else ""
        return f"{len(value)} bytes {value[:_BYTES_SHOWN].hex()}{more}" if value else "0 bytes"
    more = f" and {len(value) - _ITEMS_SHOWN} more" if len(value) > _ITEMS_SHOWN else ""
    return ", ".join(map(str, value[:_ITEMS_SHOWN])) + more


def clip(text: Any) -> str:
    """Shorten a text for a page; a text from a client can have megabytes."""
    said = str(text)
    return said if len(said) <= _CLIPPED else f"{said[:_CLIPPED]} … ({len(said):,} characters)"


def width(text: Any) -> str:
    """Return the CSS class of a table cell, by the length of its text."""
    return "long" if len(str(text or "")) > _LONG else "short"


def number(value: int | float | None) -> str:
    """Format a count with thousands separators; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def utc(at: datetime | None) -> str:
    """Format a time of the tables (UTC) to the second; a dash if it is unknown."""
    return UNKNOWN if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def iso(at: datetime) -> str:
    """Format a time of the tables (UTC) for a `<time>` element."""
    return at.isoformat(timespec="milliseconds") + "Z"


def ago(at: datetime | None, now_ms: int) -> str:
    """Format the time from `at` to `now_ms` in one unit; "now" below 1 s."""
    if at is None:
        return UNKNOWN
    seconds = now_ms / 1000 - at.replace(tzinfo=UTC).timestamp()
    return "now" if seconds < 1 else f"{duration(seconds, units=1)} ago"


def duration(seconds: float | None, units: int = 2) -> str:
    """Format a duration in its largest units: `2 min 5 s`."""
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
    """Format milliseconds as a duration; values below 1 s stay in ms."""
    if ms is None:
        return UNKNOWN
    return f"{ms} ms" if ms < 1000 else duration(ms / 1000)


def tone(name: str | None) -> str:
    """Return the tone of a state or a verdict; `mute` for other names."""
    return TONES.get(name or "", "mute")


def spans(numbers: Iterable[int]) -> str:
    """Format partition numbers as ranges: `0-5, 8`."""
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
