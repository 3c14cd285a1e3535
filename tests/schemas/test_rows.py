"""The columns that SQL sees of a table are those of its Arrow schema, and of its Delta schema."""

from __future__ import annotations

import json

import duckdb
import pytest
from deltalake import Schema

from group_coordinator.schemas import rows, tables
from group_coordinator.schemas.rows import TableRows, sql_columns, sql_columns_of_delta

ARROW = {table.name: table for table in (*tables.TABLES.values(), *tables.ON_DEMAND)}


def test_every_table_has_rows() -> None:
    assert sorted(each.name for each in rows.ALL) == sorted(ARROW)


@pytest.mark.parametrize("stored", rows.ALL, ids=lambda each: each.name)
def test_sql_sees_the_columns_of_the_arrow_schema(stored: TableRows) -> None:
    columns = ", ".join(f'"{name}" {type_}' for name, type_ in sql_columns(stored).items())
    with duckdb.connect() as connection:
        connection.register("nothing", ARROW[stored.name].schema.empty_table())
        connection.execute(f"CREATE TABLE ours ({columns})")
        assert _described(connection, "ours") == _described(connection, "nothing")


@pytest.mark.parametrize("stored", rows.ALL, ids=lambda each: each.name)
def test_sql_sees_the_columns_of_the_delta_schema(stored: TableRows) -> None:
    schema = json.loads(Schema.from_arrow(ARROW[stored.name].schema).to_json())
    assert sql_columns_of_delta(schema["fields"]) == sql_columns(stored)


def test_a_type_of_no_table_is_none_of_its_columns() -> None:
    fields = [{"name": "d", "type": "decimal(3,1)"}, {"name": "m", "type": {"type": "map"}}]
    assert sql_columns_of_delta(fields) == {"d": "?", "m": "?"}


def _described(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    described = connection.execute(f"DESCRIBE FROM {name}").fetchall()
    return [(column, type_) for column, type_, *_ in described]
