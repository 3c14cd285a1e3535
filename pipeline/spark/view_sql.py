"""Translation of the statements in `schemas/views.sql` from DuckDB's SQL to Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from pyspark.sql.types import ArrayType, DataType, StructType

from group_coordinator.pipeline.monitor.view_statements import read_statements
from group_coordinator.schemas.rows import SQL_NAMES


class SparkStatement(Struct, frozen=True):
    """The statement that creates a function or a view in Spark.

    `dependencies` has the tables, views and functions that it uses, by names without the prefix.
    """

    sql: str
    dependencies: frozenset[str]
    is_view: bool


# Types of macro parameters by name. Other parameters are BIGINT.
_TYPES = {"moment": "TIMESTAMP", "span": "INTERVAL DAY TO SECOND"}
_MACRO = re.compile(r"CREATE MACRO (\w+)\((.*?)\) AS( TABLE)?\n")
# DuckDB's syntax and functions, with Spark's equivalents. `duckdb_functions.sql` defines `ms_of`.
_WORDS = {
    r'"(\w+)"': r"`\1`",
    r"\[\]": "array()",
    r"\barg_max_null\(": "max_by(",
    r"\barray_to_string\(": "array_join(",
    r"\bgenerate_series\(": "sequence(",
    r"\blen\(": "array_size(",
    r"\blist_extract\(": "try_element_at(",
    r"\bms_of\(": "unix_millis(",
    r"\bunnest\(": "explode(",
}
# DuckDB's ASOF join: each left row joins the last right row at or before it, with two equal keys.
_ASOF = re.compile(
    r"^FROM (?P<left>\(.*^\)) (?P<name>\w+)\n"
    r"ASOF LEFT JOIN (?P<right>\(.*\) (?P<matched>\w+)|\w+)\n"
    r"ON (?P<key>\S+) = (?P<left_key>\S+) AND (?P<key_2>\S+) = (?P<left_key_2>\S+)\n"
    r"AND (?P<at>\S+) >= (?P<since>\S+)",
    re.MULTILINE | re.DOTALL,
)
# Spark has no ASOF join. This query sorts the union of both sides, and each left row takes the last
# right row at or before it. It needs one shuffle and one sort, however long the history is.
_MATCHED = """\
FROM (SELECT {name}, {matched}, {name}.*, {matched}.* FROM (
    SELECT {name}, last_value({matched}) IGNORE NULLS OVER (
        PARTITION BY key, key_2 ORDER BY place, is_left
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS {matched}
    FROM (
        SELECT struct({name}.*) AS {name}, NULL AS {matched}, {left_key} AS key,
               {left_key_2} AS key_2, {at} AS place, true AS is_left
        FROM {left} {name}
        UNION ALL
        SELECT NULL, struct({matched}.*), {key}, {key_2}, {since}, false FROM {right}
        WHERE {since} IS NOT NULL
    )
) WHERE {name} IS NOT NULL) joined"""


def spark_statements(tables: Iterable[str], prefix: str, now: str) -> dict[str, SparkStatement]:
    """Return the statements that create a root's temporary functions and views, by name, in order.

    The names of the tables, views and functions in the statements get the `prefix`; `tables` has
    the table names without it. `now` is a SQL expression for the time of a query.
    """
    functions, views = read_statements("spark_functions.sql"), read_statements("views.sql")
    names = [name for name, each in views.items() if not each.is_macro]
    called = [*functions, *(name for name, each in views.items() if each.is_macro)]
    read = re.compile(rf"\b(FROM|JOIN) ({'|'.join([*tables, *names])})\b")
    call = re.compile(rf"\b({'|'.join(called)})\(")
    made = {}
    for name, statement in (functions | views).items():
        sql = statement.sql
        if name in views:
            sql = _in_spark(sql).replace("snapshot_time()", now)
        below = {*(found[2] for found in read.finditer(sql)), *call.findall(sql)} - {name}
        sql = read.sub(rf"\1 {prefix}\2 AS \2", sql)
        sql = call.sub(rf"{prefix}\1(", sql)
        sql = sql.replace("CREATE VIEW ", f"CREATE VIEW {prefix}", 1)
        sql = sql.replace("CREATE ", "CREATE OR REPLACE TEMPORARY ", 1)
        made[name] = SparkStatement(sql, frozenset(below), name in names)
    return made


def with_dependencies(statements: Mapping[str, SparkStatement], names: Iterable[str]) -> set[str]:
    """Return the names, with all tables, functions and views that they use directly or not."""
    needed = set(names)
    for name in reversed([*statements]):
        if name in needed:
            needed |= statements[name].dependencies
    return needed


def _in_spark(sql: str) -> str:
    for theirs, ours in _WORDS.items():
        sql = re.sub(theirs, ours, sql)
    sql = _ASOF.sub(_asof, sql)
    return _MACRO.sub(_head, sql)


def _asof(found: re.Match[str]) -> str:
    parts = found.groupdict()
    return _MATCHED.format(**{**parts, "matched": parts["matched"] or parts["right"]})


def _head(found: re.Match[str]) -> str:
    name, parameters, of_table = found.groups()
    typed = ", ".join(f"{each} {_TYPES.get(each, 'BIGINT')}" for each in parameters.split(", "))
    returns = "RETURNS TABLE " if of_table else ""
    return f"CREATE FUNCTION {name}({typed}) {returns}RETURN\n"


def table_query(
    columns: StructType, found: StructType, uri: str | None, version: int | None = None
) -> str:
    """Return the query that reads a Delta table with `columns` first, then its other columns.

    Reserved words have other names (`SQL_NAMES`), and come again at the end under their own.

    `found` has the table's columns. Columns and struct fields that the table lacks are null; such
    fields come after the struct's other fields. Without a `uri` the query returns no rows. With a
    `version` it reads that version, otherwise the newest one.
    """
    known = dict(zip(found.names, found, strict=True))
    shown, old = [], {}
    for name, field in zip(columns.names, columns, strict=True):
        column, there = _quoted(name), known.get(name)
        if there is None:
            value = _null(field.dataType)
        else:
            value = _filled(column, there.dataType, field.dataType)
        alias = _quoted(SQL_NAMES.get(name, name))
        shown.append(column if value == alias else f"{value} AS {alias}")
        if name in SQL_NAMES:
            old[name] = value if value == column else f"{value} AS {column}"
    shown += [_quoted(name) for name in found.names if name not in columns.names]
    # In the order of DuckDB's views.
    shown += [old[name] for name in SQL_NAMES if name in old]
    rows = "(SELECT 1) WHERE false" if uri is None else f"delta.{_quoted(uri)}"
    past = "" if version is None else f" VERSION AS OF {version}"
    return f"SELECT {', '.join(shown)} FROM {rows}{past}"


def _filled(value: str, found: DataType, ours: DataType) -> str:
    """Return the expression of a value with missing struct fields as null.

    Return `value` unchanged if its structs lack no field.
    """
    if isinstance(found, ArrayType) and isinstance(ours, ArrayType):
        filled = _filled("item", found.elementType, ours.elementType)
        return value if filled == "item" else f"transform({value}, item -> {filled})"
    if not isinstance(found, StructType) or not isinstance(ours, StructType):
        return value
    mine = dict(zip(ours.names, ours, strict=True))
    parts = {}
    for name, field in zip(found.names, found, strict=True):
        part = parts[name] = f"{value}.{_quoted(name)}"
        if name in mine:
            parts[name] = _filled(part, field.dataType, mine[name].dataType)
    lacking = [name for name in ours.names if name not in parts]
    if not lacking and all(parts[name] == f"{value}.{_quoted(name)}" for name in parts):
        return value
    parts |= {name: _null(mine[name].dataType) for name in lacking}
    fields = ", ".join(f"{part} AS {_quoted(name)}" for name, part in parts.items())
    return f"IF({value} IS NULL, NULL, struct({fields}))"


def _null(type_: DataType) -> str:
    return f"CAST(NULL AS {type_.simpleString()})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
