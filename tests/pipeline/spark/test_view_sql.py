"""The statements for Spark are those of `views.sql`, and name what they stand on."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from group_coordinator.pipeline.monitor.catalog import LOGS
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.monitor.view_statements import names_in_query, read_statements
from group_coordinator.pipeline.session.driver_jvm import from_arrow_schema
from group_coordinator.pipeline.spark import views
from group_coordinator.pipeline.spark.view_sql import (
    spark_statements,
    table_query,
    with_dependencies,
)
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas import rows as stored
from group_coordinator.schemas.rows import SQL_NAMES
from group_coordinator.schemas.tables import TABLES as TABLES_OF_A_ROOT

TABLES = [*(LOGS.get(rows.name, rows.name) for rows in stored.ALL), *COMPUTED]
MADE = spark_statements(TABLES, "of_", "current_timestamp()")
VIEWS = {name: each for name, each in read_statements("views.sql").items() if name in MADE}


@pytest.mark.parametrize("name", [name for name, each in VIEWS.items() if not each.is_macro])
def test_a_view_stands_on_what_duckdb_s_parser_finds_in_it(name: str) -> None:
    asked = duckdb.connect(":memory:")
    named = names_in_query(lambda sql: asked.execute(sql).fetchall(), VIEWS[name].query)
    assert named is not None
    readable = {*TABLES, *VIEWS}
    macros = {each for each, view in VIEWS.items() if view.is_macro}
    assert MADE[name].dependencies & readable == (named.tables & readable) | (
        named.functions & macros
    )
    assert MADE[name].sql.startswith(f"CREATE OR REPLACE TEMPORARY VIEW of_{name} AS")


def test_what_is_not_asked_for_is_not_needed() -> None:
    needed = with_dependencies(MADE, ["empty_members"])
    wanted = {"empty_members", "group_members", "stored_groups", "offsets_topic"}
    assert needed == {*wanted, "decode_assignment"}
    assert with_dependencies(MADE, ["acls"]) == {"acls", "acl_changes"}
    assert "verdicts_over" in with_dependencies(MADE, ["group_verdicts"])


def test_of_a_table_the_columns_of_this_release_come_first_and_are_null_where_it_lacks_them() -> (
    None
):
    columns = typed(a=pa.int32(), b=pa.struct([("c", pa.string())]))
    found = typed(later=pa.string(), a=pa.int32())
    assert table_query(columns, found, "file:///x`y", 7) == (
        "SELECT `a`, CAST(NULL AS struct<c:string>) AS `b`, `later` "
        "FROM delta.`file:///x``y` VERSION AS OF 7"
    )
    assert table_query(columns, typed(), None).endswith("WHERE false")


def test_reserved_names_come_last_in_the_order_of_duckdb_s_views() -> None:
    columns = typed(table=pa.string(), at=pa.string(), n=pa.string())
    query = table_query(columns, columns, "/t")
    assert query == (
        "SELECT `table` AS `table_location`, `at` AS `changed_at`, `n`, `at`, `table` "
        "FROM delta.`/t`"
    )


def test_fields_that_a_table_lacks_within_its_structs_come_after_its_own_and_are_null() -> None:
    members = [("id", pa.string()), ("rack", pa.string())]
    ours = pa.struct([("members", pa.list_(pa.struct(members))), ("epoch", pa.int32())])
    theirs = pa.struct([("later", pa.string()), ("members", pa.list_(pa.struct(members[:1])))])
    query = table_query(typed(a=ours, b=ours), typed(a=theirs, b=ours), "s3a://b/x")
    assert query == (
        "SELECT IF(`a` IS NULL, NULL, struct(`a`.`later` AS `later`, "
        "transform(`a`.`members`, item -> IF(item IS NULL, NULL, "
        "struct(item.`id` AS `id`, CAST(NULL AS string) AS `rack`))) AS `members`, "
        "CAST(NULL AS int) AS `epoch`)) AS `a`, `b` FROM delta.`s3a://b/x`"
    )


def test_a_table_of_this_release_is_read_as_it_is(root: str) -> None:
    for table in TABLES_OF_A_ROOT.values():
        columns = ", ".join(map(_column, table.schema.names))
        columns += "".join(f", `{name}`" for name in table.schema.names if name in SQL_NAMES)
        asked = views._query(root, table, None)
        assert asked == f"SELECT {columns} FROM delta.`file://{table_uri(root, table)}`"


def _column(name: str) -> str:
    return f"`{name}` AS `{SQL_NAMES[name]}`" if name in SQL_NAMES else f"`{name}`"


def typed(**columns: pa.DataType) -> StructType:
    return from_arrow_schema(pa.schema(columns.items()))
