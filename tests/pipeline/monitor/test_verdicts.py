"""What the last commits of a group tell of it."""

from __future__ import annotations

from pathlib import Path
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
    assert ask(log, "read_rate, added_rate, catch_up_rate") == (5.0, 10.0, 10.0 + 750 / 600)
    assert ask(log, "reason") == (
        "the lag grows: 5.0 records a second are read, and 10.0 come; "
        "11.2 a second would catch up in 600 s"
    )
    other = "verdicts_over(INTERVAL 1 MINUTE)"
    assert ask(log, "catch_up_rate", other) == 10.0 + 750 / 60


def test_two_commits_do_not_tell_how_a_lag_changes(log: Log) -> None:
    commits(log, 100, 150)
    told = ("OK", "two commits do not tell how the lag changes")
    assert ask(log, "verdict, reason") == told


def test_commits_at_one_time_have_no_rate_and_no_trend(log: Log) -> None:
    commits(log, 300, 200, 100, every_ms=0)
    assert ask(log, "verdict, read_rate, added_rate, catch_up_rate") == ("OK", None, None, None)


def test_a_group_that_commits_the_same_offset_again_and_again_is_stalled(log: Log) -> None:
    commits(log, 100, 100, 100)
    assert ask(log, "verdict, lag") == ("stalled", 900)


def test_a_group_that_commits_nothing_though_records_wait_is_stopped(log: Log) -> None:
    commits(log, 100, 150, last_ms=NOW_MS - 61_000)
    assert ask(log, "verdict, lag") == ("stopped", 850)


def test_a_group_is_silent_for_longer_than_its_commits_took_before_it_is_stopped(log: Log) -> None:
    commits(log, 0, 50, every_ms=70_000, last_ms=NOW_MS - 61_000)
    assert ask(log, "verdict") == "OK"


def test_a_group_that_was_idle_is_not_stopped_when_records_come(log: Log) -> None:
    """It last committed long ago, and what it has not read came just now."""
    commits(log, 400, 500, last_ms=NOW_MS - 61_000)
    appended = NOW_MS - 50_000
    assert ask(log, "verdict, lag, epoch_ms(unread_since)", _WITH_LAG) == ("OK", 500, appended)


_WITH_LAG = "(SELECT verdicts.*, unread_since FROM verdicts JOIN lag USING (group_id))"


def test_a_group_that_catches_up_is_ok(log: Log) -> None:
    commits(log, 100, 400, 700)
    assert ask(log, "verdict, lag") == ("OK", 300)


def test_a_group_whose_lag_was_zero_less_than_a_minute_ago_is_ok(log: Log) -> None:
    commits(log, 800, 850, 900, last_ms=NOW_MS)
    assert ask(log, "verdict, least_lag, reason") == (
        "OK",
        0,
        "all was read less than a minute ago",
    )


def test_a_lag_that_grows_since_all_was_read_is_lagging(log: Log) -> None:
    commits(log, 200, 250, 300, 350, 400, 450, 500, 550, 600)
    assert ask(log, "verdict, least_lag") == ("lagging", 0)


def test_ten_commits_are_looked_at_where_they_took_longer(log: Log) -> None:
    commits(log, 100, *[500] * 10, every_ms=1_000)
    assert ask(log, "verdict, commits") == ("stalled", 11)
    assert ask(log, "verdict, commits", "verdicts_over(INTERVAL 1 SECOND)") == ("stalled", 10)


# --- lags that were recorded ----------------------------------------------------------------------

# For three topics with a table each, seven minutes long, on a busy machine: some 200 records were
# appended each second, and a consumer read up to 500 at a time and committed every 2 s. "grows": it
# took 3.1 ms for a record, and 6.7 ms from the third minute on; "steady": 2.5 ms; "catches up": 3.7
# ms, starting with a lag of 30,000 records. Each row is a commit, and the topic's end at its time.
LAGS = Path(__file__).with_name("recorded_lags.csv")
MINUTE_MS = 60_000


def judged(log: Log, series: str, at_ms: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The verdict, the reason and the rates at a time of a series."""
    monkeypatch.setattr(catalog_module, "clock_ms", lambda: at_ms)
    catalog = Catalog(log.root)
    catalog.materialize(
        "lag_history",
        "SELECT series AS group_id, 't' AS topic, 0 AS \"partition\", epoch_ms(ms) AS written_at, "
        "ms AS log_offset, row_number() OVER (ORDER BY ms DESC) - 1 AS commits_since, "
        "committed_offset, log_end_offset, log_end_offset - committed_offset AS lag, NULL AS "
        f"request_id FROM read_csv('{LAGS}') WHERE series = '{series}' AND ms <= {at_ms}",
    )
    catalog.materialize(
        "lag",
        'SELECT group_id, topic, "partition", committed_offset, 0 AS log_start_offset, '
        "log_end_offset, lag, 1.0 AS lag_seconds, written_at AS unread_since, "
        "written_at AS committed_at FROM lag_history WHERE commits_since = 0",
    )
    asked = "SELECT verdict, reason, read_rate, added_rate, catch_up_rate FROM verdicts"
    return catalog.query(asked).rows[0]


def test_a_lag_that_has_grown_for_four_minutes_is_lagging(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It became smaller between two commits again and again: a batch is read, or none was added."""
    at_ms = 7 * MINUTE_MS
    assert judged(log, "grows", 3 * MINUTE_MS, monkeypatch)[0] == "OK"
    verdict, _, read, added, needed = judged(log, "grows", at_ms, monkeypatch)
    assert verdict == "lagging"
    assert read < added < needed


@pytest.mark.parametrize("minutes", range(1, 8))
def test_a_lag_that_goes_up_and_down_is_ok(
    log: Log, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(log, "steady", minutes * MINUTE_MS, monkeypatch)[0] == "OK"


@pytest.mark.parametrize("minutes", range(1, 8))
def test_a_lag_that_becomes_smaller_is_ok(
    log: Log, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(log, "catches up", minutes * MINUTE_MS, monkeypatch)[0] == "OK"


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
