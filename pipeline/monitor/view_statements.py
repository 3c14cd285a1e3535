"""The SQL statements of the views, and the names in a query, found with DuckDB's parser."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.delta import quoted

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Ask


_HEAD = re.compile(r"CREATE (?:VIEW|MACRO|FUNCTION) (\w+)(?:\([^)]*\))?\s+(?:AS\s+(TABLE\s+)?)?")
# Nodes of DuckDB's parse tree that refer to a table or view: `FROM x` and `SHOW x`.
_OF_TABLES = ("BASE_TABLE", "SHOW_REF")
_NO_NAMES: frozenset[str] = frozenset()


class Statement(Struct, frozen=True):
    """A view or a macro: the statement that creates it, and the query in it."""

    name: str
    sql: str
    query: str
    is_macro: bool


@cache
def read_statements(file: str) -> dict[str, Statement]:
    """Return the statements of a file in the package `schemas` by name, in the file's order."""
    text = resources.files("group_coordinator.schemas").joinpath(file).read_text("utf-8")
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    statements = {}
    for sql in filter(None, map(str.strip, re.split(r";$", plain, flags=re.MULTILINE))):
        head = _HEAD.match(sql)
        assert head, sql
        body = sql[head.end() :]
        is_macro = head[0].startswith("CREATE MACRO")
        query = f"SELECT {body}" if is_macro and not head[2] else body
        statements[head[1]] = Statement(head[1], sql, query, is_macro)
    return statements


class QueryNames(Struct, frozen=True):
    """The names of tables, views and functions in a query, in lower case."""

    tables: frozenset[str]
    functions: frozenset[str]


def names_in_query(ask: Ask, sql: str) -> QueryNames | None:
    """Return the names in the queries of a text; None if a statement is not a query.

    `ask` runs a DuckDB query. A text that cannot be parsed has no names. DuckDB's `get_table_names`
    also binds the query, so it fails for parameters, for views with an ASOF JOIN, and for a join
    with `USING` on a missing table.
    """
    ((text,),) = ask("SELECT json_serialize_sql(" + quoted(sql) + ")")
    parsed = msgspec.json.decode(text)
    if parsed["error"]:
        return (
            None if parsed["error_type"] == "not implemented" else QueryNames(_NO_NAMES, _NO_NAMES)
        )
    tables, functions = set(), set()
    left: list[Any] = [parsed["statements"]]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if each.get("type") in _OF_TABLES and each["table_name"]:
                tables.add(each["table_name"].lower())
            elif "function_name" in each:
                functions.add(each["function_name"].lower())
            left += each.values()
        elif isinstance(each, list):
            left += each
    return QueryNames(frozenset(tables), frozenset(functions))
