"""Tables and views as they were."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from group_coordinator.pipeline.monitor.as_of import (
    EPOCH,
    InvalidAsOf,
    NotKept,
    commit_times,
    read_as_of,
)
from group_coordinator.pipeline.monitor.catalog import AmbiguousVersion, Catalog
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

START_MS = 1_700_000_000_000


def after(seconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=START_MS, seconds=seconds)


def date(uri: str, *seconds: float) -> None:
    """Give the commits of a table these times, after the start."""
    for version, after_s in enumerate(seconds):
        commit_file = Path(uri) / f"_delta_log/{version:020}.json"
        at = START_MS / 1000 + after_s
        os.utime(commit_file, (at, at))


@pytest.fixture
def log(root: str) -> Log:
    """Commits at 10 s and 20 s; the tables were made at the start."""
    found = Log(root)
    found.append(commit("g", 1, 5))
    found.append(commit("g", 2, 5))
    date(found.uri, 0, 10, 20)
    return found


def committed(root: str, as_of: datetime | int) -> list[Any]:
    return Catalog(root, as_of).query("SELECT committed_offset FROM committed_offsets").rows


@pytest.mark.parametrize(
    ("seconds", "offsets"),
    [(-1, []), (0, []), (10, [(1,)]), (19.999, [(1,)]), (20, [(2,)]), (99, [(2,)])],
)
def test_a_view_is_what_it_was_at_a_time(log: Log, seconds: float, offsets: list[Any]) -> None:
    assert committed(log.root, after(seconds)) == offsets


def test_a_table_is_what_it_was_at_a_version(log: Log) -> None:
    assert [committed(log.root, version) for version in range(3)] == [[], [(1,)], [(2,)]]
    with pytest.raises(
        NotKept, match=r"at version 3 is not retained: its log has the versions 0 to 2"
    ):
        committed(log.root, 3)


def test_a_version_is_refused_where_a_query_reads_several_tables(log: Log) -> None:
    with pytest.raises(
        AmbiguousVersion, match=r"this query reads group_events, offsets_topic: give a time"
    ):
        Catalog(log.root, 1).query("SELECT * FROM groups")
    with pytest.raises(AmbiguousVersion):
        Catalog(log.root, 1).query("SHOW TABLES")


def test_a_time_before_the_log_is_refused_by_how_far_it_reaches(log: Log) -> None:
    (Path(log.uri) / f"_delta_log/{0:020}.json").unlink()
    with pytest.raises(
        NotKept, match=r"versions 1 to 2, the first of 2023-11-14T22:13:30.000\+00:00"
    ):
        committed(log.root, after(5))


def test_a_clock_that_steps_back_between_two_commits_reorders_nothing(log: Log) -> None:
    date(log.uri, 0, 20, 10)
    assert commit_times(log.uri)[1:] == [(1, START_MS + 20_000), (2, START_MS + 20_001)]
    assert committed(log.root, after(15)) == []
    assert committed(log.root, after(20)) == [(1,)]
    assert committed(log.root, after(20.001)) == [(2,)]


def test_lag_is_what_it_was_and_its_seconds_are_those_of_that_time(log: Log) -> None:
    topic = make(log.root)
    appender(topic).append([batch(0, "a", "b", "c")])
    appender(topic).append([batch(0, "d")])
    for table in ("topics", "topic_tables"):
        uri = f"{log.root}/{table}"
        date(uri, *[0] * len(commit_times(uri)))
    date(topic.table, 0, 10, 20)
    asked = "SELECT committed_offset, log_end_offset, lag FROM lag"
    assert Catalog(log.root, after(10)).query(asked).rows == [(1, 3, 2)]
    assert Catalog(log.root, after(20)).query(asked).rows == [(2, 4, 2)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("17", 17),
        ("2026-11-22", datetime(2026, 11, 22, tzinfo=UTC)),
        ("2026-11-22 12:00", datetime(2026, 11, 22, 12, tzinfo=UTC)),
        ("2026-11-22T12:00:00Z", datetime(2026, 11, 22, 12, tzinfo=UTC)),
        ("2026-11-22T12:00:00+01:00", datetime(2026, 11, 22, 11, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, meant: datetime | int) -> None:
    assert read_as_of(text) == meant


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "2026-13-01"])
def test_what_is_neither_a_time_nor_a_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidAsOf, match="neither a version nor an ISO 8601 time"):
        read_as_of(text)
