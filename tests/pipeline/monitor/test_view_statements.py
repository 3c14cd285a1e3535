"""What a query names, so that no more of a root is opened than it needs."""

from __future__ import annotations

import duckdb
import pytest

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.view_statements import QueryNames, names_in_query
from tests.pipeline.offsets_log import Log, commit


def named(sql: str) -> QueryNames | None:
    return names_in_query(lambda asked: duckdb.connect(":memory:").execute(asked).fetchall(), sql)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 'it''s of groups' FROM \"Lag\"", {"lag"}),
        ("SELECT lag(x) OVER () FROM main.acls -- topics", {"acls"}),
        ("SELECT * FROM lag JOIN groups USING (group_id) WHERE topic = ?", {"lag", "groups"}),
        ("SELECT 1 WHERE EXISTS (FROM acls); DESCRIBE topics", {"acls", "topics"}),
        ("SUMMARIZE lag", {"lag"}),
        ("selec groups", set()),
    ],
)
def test_a_query_names_what_stands_where_a_table_may(sql: str, tables: set[str]) -> None:
    found = named(sql)
    assert found is not None
    assert found.tables == tables


def test_functions_are_named_apart_from_tables() -> None:
    found = named("SELECT lag(x) OVER (), as_time(y) FROM offsets_as_of(now())")
    assert found == QueryNames(frozenset(), frozenset({"lag", "as_time", "offsets_as_of", "now"}))


@pytest.mark.parametrize("sql", ["EXPLAIN FROM lag", "CREATE TABLE x AS FROM lag"])
def test_of_other_statements_than_queries_it_is_not_known(sql: str) -> None:
    assert named(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT committed_offset FROM query_table('committed_offsets')",
        "PIVOT committed_offsets ON topic IN ('t') USING sum(committed_offset) GROUP BY partition",
    ],
)
def test_what_the_parser_does_not_name_is_made_as_well(root: str, sql: str) -> None:
    log = Log(root)
    log.append(commit("g", 3, 2_000))
    ((*_, offset),) = Catalog(root).query(sql).rows
    assert offset == 3
