"""Parsers of an operator's times and durations: ISO 8601, as Kafka's tools accept it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from group_coordinator.pipeline.errors import Failure

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)


def parse_time(text: str) -> int:
    """Return a time in ms since 1970; a time without a zone is in UTC. Raises Failure."""
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day, time, fraction, zone = found.groups()
        moment = datetime.fromisoformat(f"{day}T{time}.{(fraction or '0').ljust(6, '0')}")
        moment = moment.replace(tzinfo=UTC) - _offset(zone)
    except (ValueError, OverflowError) as error:
        raise Failure(
            f"{text!r} is no time such as 2026-11-17T12:00:00.000, or with a zone as Z or +01:00"
        ) from error
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Return a duration such as P1DT2H30M in ms; raises Failure."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise Failure(f"{text!r} is no duration such as PT30M, PT1H30M or P7D")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return round((days * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1000)


def _offset(zone: str | None) -> timedelta:
    if zone in (None, "Z"):
        return timedelta()
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(4, "0")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -ahead if zone[0] == "-" else ahead
