"""A group's lag over time, by partition and in total, and its chart line as SVG paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot


# The lag is computed from the newest commits of a group, up to this number.
_COMMITS = 20_000
# A period without commits counts as a silence if it is longer than 1/50 of the shown time.
_SILENCE_SHARE = 50
# Points in time at which the lag in silences is computed, for each partition; fewer for groups with
# many partitions.
_MOMENTS, _FEWEST_MOMENTS, _MOST_OF_ALL = 100, 10, 20_000

_Key: TypeAlias = "tuple[str, int]"
_Point: TypeAlias = "tuple[datetime, int]"
_ENDS = """
SELECT end_at(
    epoch_ms(moment), log_end_offset, next_end_offset, epoch_ms(changed_at), epoch_ms(next_at)
)
FROM (
    SELECT unnest($1) AS place, unnest($2) AS topic, unnest($3)::INTEGER AS "partition",
           unnest($4)::TIMESTAMP AS moment
) moments
ASOF LEFT JOIN topic_timeline
ON topic_timeline.topic = moments.topic AND topic_timeline."partition" = moments."partition"
AND moment >= changed_at
ORDER BY place
"""


class _Moment(Struct, frozen=True):
    key: _Key
    at: datetime
    committed: int


class LagHistory(Struct, frozen=True):
    """The lag over time as (time, records), for each partition (topic, number) and in total.

    Between two points of a partition the lag is interpolated linearly. Two points with the same
    time are the lag before and after a commit.
    """

    of_partitions: Mapping[_Key, list[_Point]]
    of_all: list[_Point]


def read_lag_history(
    snapshot: RootSnapshot, group_id: str, unindexed: Mapping[str, datetime]
) -> LagHistory:
    """Return the lag at each known commit, and its growth in periods without commits.

    While a group commits often, its points are its commits. In a long period without commits, also
    the current one, the lag follows the topic's end offset. That is known until now or, if the
    topic's table has rows that are not indexed, until the topic's time in `unindexed`. Raises
    QueryError.
    """
    rows = snapshot.query(
        'SELECT topic, "partition", written_at, committed_offset, lag FROM lag_history '
        "WHERE group_id = ? AND lag IS NOT NULL ORDER BY written_at DESC, log_offset DESC LIMIT ?",
        group_id,
        _COMMITS,
    ).rows
    commits: dict[_Key, list[tuple[datetime, int, int]]] = {}
    for topic, number, at, committed, lag in reversed(rows):
        commits.setdefault((topic, number), []).append((at, committed, lag))
    known_to = {key: min(snapshot.at, unindexed.get(key[0], snapshot.at)) for key in commits}
    moments = list(_moments(commits, known_to))
    points: dict[_Key, list[tuple[datetime, bool, int]]] = {
        key: [(at, True, lag) for at, _, lag in each] for key, each in commits.items()
    }
    for moment, end in zip(moments, _ends(snapshot, moments), strict=True):
        points[moment.key].append((moment.at, False, max(0, end - moment.committed)))
    for each in points.values():
        each.sort()
    return LagHistory(
        {key: [(at, lag) for at, _, lag in each] for key, each in points.items()}, _sum(points)
    )


def _moments(
    commits: Mapping[_Key, list[tuple[datetime, int, int]]], known_to: Mapping[_Key, datetime]
) -> Iterator[_Moment]:
    """Yield points in time in each partition's periods without commits, also each period's end."""
    if not commits:
        return
    first = min(each[0][0] for each in commits.values())
    span = max(known_to.values()) - first
    if span <= timedelta(0):
        return
    count = max(_FEWEST_MOMENTS, min(_MOMENTS, _MOST_OF_ALL // len(commits)))
    grid = [first + span * place / count for place in range(1, count)]
    for key, each in commits.items():
        ends = [at for at, _, _ in each[1:]] + [known_to[key]]
        for (began, committed, _), ended in zip(each, ends, strict=True):
            if ended - began > span / _SILENCE_SHARE:
                yield from (_Moment(key, at, committed) for at in grid if began < at < ended)
                yield _Moment(key, ended, committed)


def _ends(snapshot: RootSnapshot, moments: list[_Moment]) -> list[int]:
    """Return the end offset of the moment's partition at each moment; 0 if unknown."""
    if not moments:
        return []
    columns: list[list[Any]] = [
        list(range(len(moments))),
        [moment.key[0] for moment in moments],
        [moment.key[1] for moment in moments],
        [moment.at for moment in moments],
    ]
    return [end or 0 for (end,) in snapshot.query(_ENDS, *columns).rows]


def _sum(points: Mapping[_Key, Iterable[tuple[datetime, bool, int]]]) -> list[_Point]:
    steps = sorted(
        (at, is_after, key, lag) for key, each in points.items() for at, is_after, lag in each
    )
    latest: dict[_Key, int] = {}
    totals: dict[tuple[datetime, bool], int] = {}
    total = 0
    for at, is_after, key, lag in steps:
        total += lag - latest.get(key, 0)
        latest[key] = lag
        totals[at, is_after] = total
    return [(at, lag) for (at, _), lag in totals.items()]


# A chart with more points than pixels is no clearer.
_MOST_POINTS = 300


class Trend(Struct, frozen=True):
    """A value over time within a box of `width` x `height`; `line` and `area` are SVG paths."""

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
