"""A lag is marked if its end does not include all rows of a user's table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.admin import descriptions
from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.monitor.catalog import Catalog
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define, opened

SINCE = "SELECT DISTINCT unindexed_since FROM topic_ends WHERE topic = 't'"


@pytest.fixture
def table(root: str, tmp_path: Path) -> str:
    """Create the table of the topic `t` with two indexed rows; group `g` has read one."""
    table = str(tmp_path / "table")
    append(table, range(2))
    define(root, table, 1)
    opened(root)
    Log(root).append(commit("g", 1, 1_000, ("t", 0)))
    return table


def unindexed_since(root: str) -> datetime | None:
    ((since,),) = Catalog(root).query(SINCE).rows
    return since


def test_a_table_that_is_indexed_has_nothing_beyond_its_ends(root: str, table: str) -> None:
    assert unindexed_since(root) is None


def test_rows_that_nobody_has_indexed_lie_beyond_the_end(root: str, table: str) -> None:
    append(table, range(2, 4))
    first = open_delta(table).history(1)[0]["timestamp"]
    append(table, range(4, 6))
    since = unindexed_since(root)
    assert since is not None
    assert (since - datetime(1970, 1, 1)).total_seconds() * 1000 == pytest.approx(first)
    opened(root)
    assert unindexed_since(root) is None


def test_a_rewrite_of_rows_adds_none(root: str, table: str) -> None:
    append(table, range(2, 4))
    opened(root)
    open_delta(table).optimize.compact()
    assert unindexed_since(root) is None


def test_a_table_that_is_away_may_have_had_rows_since_the_last_that_are_indexed(
    root: str, table: str
) -> None:
    indexed = open_delta(table).history(1)[0]["timestamp"]
    Path(table).rename(f"{table}-elsewhere")
    since = unindexed_since(root)
    assert since is not None
    assert (since - datetime(1970, 1, 1)).total_seconds() * 1000 == pytest.approx(indexed)
    Path(f"{table}-elsewhere").rename(table)
    assert unindexed_since(root) is None


def test_a_topics_own_table_is_its_own_index(root: str) -> None:
    appender(make(root, 1)).append([batch(0, "a")])
    assert unindexed_since(root) is None


@pytest.mark.slow
def test_whoever_asks_for_the_lag_is_told_and_can_index(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "_INDEXING_GRACE_S", -60)
    append(table, range(2, 4))
    before = CliRunner().invoke(make_app(), ["groups", "describe", "g", "--root", root])
    assert "topic 't' has rows since" in before.stderr
    assert "`topics index t` indexes them" in before.stderr
    assert CliRunner().invoke(make_app(), ["topics", "index", "t", "--root", root]).exit_code == 0
    after = CliRunner().invoke(make_app(), ["groups", "describe", "g", "--root", root])
    assert "has rows since" not in after.stderr
    (row,) = [line.split() for line in after.stdout.splitlines()[1:]]
    assert row[3:6] == ["1", "4", "3"]
