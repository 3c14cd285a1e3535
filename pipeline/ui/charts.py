"""The geometry of chart lines, as SVG paths; a template draws them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

# A chart with more points than pixels is no clearer.
_MOST_POINTS = 300


class Trend(Struct, frozen=True):
    """A value over time within a box of `width` x `height`; `line` and `area` are SVG paths.

    Consecutive values are joined by straight lines.
    """

    width: int
    height: int
    line: str
    area: str
    first_at: datetime
    last_at: datetime
    highest: int
    last: int


def trend(
    points: Sequence[tuple[datetime, int]], width: int, height: int, pad: int = 2
) -> Trend | None:
    """Return the paths for (time, value) pairs in order of time; None for less than two times."""
    thinned = _thin(points)
    if len(thinned) < 2 or thinned[0][0] >= thinned[-1][0]:
        return None
    first, last = thinned[0][0], thinned[-1][0]
    span = (last - first).total_seconds()
    highest = max(value for _, value in thinned)
    scale = (height - 2 * pad) / max(1, highest)

    def x(at: datetime) -> float:
        return round((at - first).total_seconds() / span * width, 1)

    def y(value: int) -> float:
        return round(height - pad - value * scale, 1)

    line = [f"M{x(first)} {y(thinned[0][1])}"]
    for at, value in thinned[1:]:
        line.append(f"L{x(at)} {y(value)}")
    path = "".join(line)
    area = f"{path}V{height}H0Z"
    return Trend(width, height, path, area, first, last, highest, thinned[-1][1])


def _thin(points: Sequence[tuple[datetime, int]]) -> list[tuple[datetime, int]]:
    """Reduce the points to the highest point of each interval, and the last point."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    step = -(-len(points) // _MOST_POINTS)
    kept = [
        max(points[start : start + step], key=lambda point: point[1])
        for start in range(0, len(points) - 1, step)
    ]
    return [*kept, points[-1]]
