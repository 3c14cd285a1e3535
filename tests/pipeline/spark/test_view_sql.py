"""The statements for Spark are those of `views.sql`, and name what they stand on."""

from __future__ import annotations

import duckdb
import pytest

from group_coordinator.pipeline.monitor.catalog import COMPUTED, LOGS
from group_coordinator.pipeline.monitor.view_text import names_in, read_statements
from group_coordinator.pipeline.spark.view_sql import (
    spark_statements,
    table_query,
    with_all_below,
)
from group_coordinator.schemas import rows as stored

TABLES = [*(LOGS.get(rows.name, rows.name) for rows in stored.ALL), *COMPUTED]
MADE = spark_statements(TABLES, "of_", "current_timestamp()")
VIEWS = {name: each for name, each in read_statements("views.sql").items() if name in MADE}


@pytest.mark.parametrize("name", [name for name, each in VIEWS.items() if not each.is_macro])
def test_a_view_stands_on_what_duckdb_s_parser_finds_in_it(name: str) -> None:
    asked = duckdb.connect(":memory:")
    named = names_in(lambda sql: asked.execute(sql).fetchall(), VIEWS[name].query)
    assert named is not None
    readable = {*TABLES, *VIEWS}
    macros = {each for each, view in VIEWS.items() if view.is_macro}
    assert MADE[name].below & readable == (named.tables & readable) | (named.functions & macros)
    assert MADE[name].sql.startswith(f"CREATE OR REPLACE TEMPORARY VIEW of_{name} AS")


def test_what_is_not_asked_for_is_not_needed() -> None:
    needed = with_all_below(MADE, ["empty_members"])
    wanted = {"empty_members", "group_members", "stored_groups", "offsets_topic"}
    assert needed == {*wanted, "decode_assignment"}
    assert with_all_below(MADE, ["acls"]) == {"acls", "acl_changes"}
    assert "verdicts_over" in with_all_below(MADE, ["group_verdicts"])


def test_of_a_table_the_columns_of_this_release_come_first_and_are_null_where_it_lacks_them() -> (
    None
):
    columns = {"a": "int", "b": "struct<c:string>"}
    assert table_query(columns, ["later", "a"], "file:///x`y", 7) == (
        "SELECT `a`, CAST(NULL AS struct<c:string>) AS `b`, `later` "
        "FROM delta.`file:///x``y` VERSION AS OF 7"
    )
    assert table_query({"a": "int"}, [], None).endswith("WHERE false")
