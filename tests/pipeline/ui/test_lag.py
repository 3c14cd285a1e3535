"""The lag of a group over time, as its page draws it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.ui.lag import LagHistory, read_lag_history
from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot
from tests.pictures.history import VirtualClock
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

NOW_MS = 1_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC).replace(tzinfo=None)


@pytest.fixture
def log(root: str) -> Iterator[Log]:
    """An offsets log, and a topic that was given 10 records a second for 100 s until now."""
    appended = appender(make(root))
    for start_ms in range(NOW_MS - 100_000, NOW_MS, 10_000):
        produced = batch(0, *("v" for _ in range(100)))
        produced.timestamps = [start_ms + 100 * place for place in range(100)]
        appended.append([produced])
    with clock.use(VirtualClock(NOW_MS)):
        yield Log(root)


def told(log: Log, unindexed: dict[str, datetime] | None = None) -> LagHistory:
    return read_lag_history(RootSnapshot(log.root, 1), "g", unindexed or {})


def lag_at(history: LagHistory, seconds: float) -> list[int]:
    """The lags at so many seconds before now."""
    at = NOW - timedelta(seconds=seconds)
    return [lag for time, lag in history.of_partitions["t", 0] if time == at]


def test_while_a_group_commits_often_its_commits_are_the_points(log: Log) -> None:
    log.append(*(commit("g", 10 * each, NOW_MS - 100_000 + 1_000 * each) for each in range(100)))
    points = told(log).of_all
    assert len(points) == 100
    assert max(lag for _, lag in points) == 1


def test_in_a_silence_the_lag_follows_the_end_of_the_topic_up_to_now(log: Log) -> None:
    log.append(commit("g", 100, NOW_MS - 90_000), commit("g", 300, NOW_MS - 70_000))
    history = told(log)
    assert lag_at(history, 90) == [0]
    assert lag_at(history, 70) == [200, 0], "before the commit and after it"
    assert lag_at(history, 0) == [700]
    assert [lag for at, lag in history.of_all if at == NOW] == [700]
    growing = [lag for at, lag in history.of_all if at >= NOW - timedelta(seconds=69)]
    assert len(growing) > 50
    assert growing == sorted(growing)
    assert max(b - a for a, b in pairwise(growing)) < 20, "it does not jump"


def test_no_lag_is_drawn_for_a_time_whose_end_is_not_indexed(log: Log) -> None:
    log.append(commit("g", 100, NOW_MS - 90_000))
    known_to = NOW - timedelta(seconds=30)
    history = told(log, {"t": known_to})
    assert history.of_all[-1] == (known_to, 600)


def test_all_partitions_together_have_the_sum_of_their_lags(log: Log) -> None:
    for number in (0, 1):
        log.append(commit("g", 0, NOW_MS - 50_000, ("t", number)))
    history = told(log)
    assert history.of_all[0] == (NOW - timedelta(seconds=50), 500)
    assert history.of_all[-1] == (NOW, 1_000)


def test_a_clock_that_was_set_back_draws_nothing_that_has_not_come_yet(log: Log) -> None:
    log.append(commit("g", 100, NOW_MS + 90_000))
    assert [lag for _, lag in told(log).of_all] == [900]
    assert told(Log(log.root + "-empty")).of_all == []
