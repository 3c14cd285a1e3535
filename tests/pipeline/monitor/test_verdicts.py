"""What the last commits of a group tell of it: Burrow's rules."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.pipeline.monitor import catalog as catalog_module
from group_coordinator.pipeline.monitor.catalog import Catalog
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

NOW_MS = 1_000_000


@pytest.fixture
def log(root: str, monkeypatch: pytest.MonkeyPatch) -> Log:
    """An offsets log, and a topic to which 10 records a second were appended until now."""
    monkeypatch.setattr(catalog_module, "clock_ms", lambda: NOW_MS)
    topic = make(root)
    log_appender = appender(topic)
    for start_ms in range(NOW_MS - 100_000, NOW_MS, 10_000):
        produced = batch(0, *("v" for _ in range(100)))
        produced.timestamps = [start_ms + 100 * place for place in range(100)]
        log_appender.append([produced])
    return Log(root)


def ask(log: Log, columns: str, view: str = "verdicts") -> Any:
    ((*found,),) = Catalog(log.root).query(f"SELECT {columns} FROM {view}").rows
    return tuple(found) if len(found) > 1 else found[0]


def commits(log: Log, *offsets: int, every_ms: int = 10_000, last_ms: int = NOW_MS) -> None:
    """Commits of these offsets, the last one now."""
    for place, offset in enumerate(offsets):
        log.append(commit("g", offset, last_ms - every_ms * (len(offsets) - 1 - place)))


def test_the_lag_at_each_commit_is_known_afterwards(log: Log) -> None:
    commits(log, 300, 500, 790, last_ms=NOW_MS - 20_000)
    asked = "SELECT committed_offset, log_end_offset, lag, commits_since FROM lag_history"
    assert Catalog(log.root).query(f"{asked} ORDER BY log_offset").rows == [
        (300, 600, 300, 2),
        (500, 700, 200, 1),
        (790, 800, 10, 0),
    ]


def test_a_group_that_has_read_everything_is_ok(log: Log) -> None:
    commits(log, 400, 400, 1_000)
    assert ask(log, "verdict, lag, commits") == ("OK", 0, 3)


def test_a_group_that_reads_and_does_not_keep_up_is_lagging(log: Log) -> None:
    commits(log, 100, 150, 200, 250)
    assert ask(log, "verdict, least_lag, greatest_lag") == ("lagging", 600, 750)


def test_a_group_that_commits_the_same_offset_again_and_again_is_stalled(log: Log) -> None:
    commits(log, 100, 100, 100)
    assert ask(log, "verdict, lag") == ("stalled", 900)


def test_a_group_that_commits_nothing_though_records_wait_is_stopped(log: Log) -> None:
    commits(log, 100, 150, last_ms=NOW_MS - 61_000)
    assert ask(log, "verdict, lag") == ("stopped", 850)


def test_a_group_is_silent_for_longer_than_its_commits_took_before_it_is_stopped(log: Log) -> None:
    commits(log, 0, 50, every_ms=70_000, last_ms=NOW_MS - 61_000)
    assert ask(log, "verdict") == "lagging"


def test_a_group_that_was_idle_is_not_stopped_when_records_come(log: Log) -> None:
    """It last committed long ago, and what it has not read came just now."""
    commits(log, 400, 500, last_ms=NOW_MS - 61_000)
    appended = NOW_MS - 50_000
    assert ask(log, "verdict, lag, epoch_ms(unread_since)", _WITH_LAG) == ("OK", 500, appended)


_WITH_LAG = "(SELECT verdicts.*, unread_since FROM verdicts JOIN lag USING (group_id))"


def test_a_group_that_catches_up_is_ok(log: Log) -> None:
    commits(log, 100, 400, 700)
    assert ask(log, "verdict, lag") == ("OK", 300)


def test_a_group_whose_lag_was_zero_lately_is_ok(log: Log) -> None:
    commits(log, 800, 850, 900, last_ms=NOW_MS)
    log.append(commit("g", 900, NOW_MS + 1))
    assert ask(log, "verdict, least_lag") == ("OK", 0)


def test_ten_commits_are_looked_at(log: Log) -> None:
    commits(log, 100, *[500] * 10, every_ms=1_000)
    assert ask(log, "verdict, commits") == ("stalled", 10)


def test_one_commit_tells_nothing_until_it_is_followed_by_silence(log: Log) -> None:
    commits(log, 100)
    assert ask(log, "verdict, reason") == ("OK", "a single commit does not tell")


def test_a_clock_that_stepped_back_stops_nobody(log: Log) -> None:
    """Commits and records from the future: neither silence nor age is negative."""
    commits(log, 100, 150, last_ms=NOW_MS + 500_000)
    assert ask(log, "verdict, lag_seconds") == ("OK", 85.0)


@pytest.mark.slow
def test_of_a_topic_that_is_no_table_there_is_no_verdict(log: Log) -> None:
    log.append(commit("g", 1, NOW_MS, ("elsewhere", 0)))
    assert ask(log, "verdict, reason") == (None, "the ends of the topic are not known")
    assert ask(log, "verdict, partitions, lag", "group_verdicts") == (None, 1, None)


def test_a_groups_verdict_is_its_worst_partitions(log: Log) -> None:
    commits(log, 100, 100)
    for at_ms in (NOW_MS - 1, NOW_MS):
        log.append(commit("g", 0, at_ms, ("t", 1)))
    asked = "verdict, partitions, stopped, stalled, lagging, lag"
    assert ask(log, asked, "group_verdicts") == ("stalled", 2, 0, 1, 0, 900)
