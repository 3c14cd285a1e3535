"""The statements that make the views, and which of them a query needs."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from msgspec import Struct

_HEAD = re.compile(r"CREATE (?:VIEW|MACRO) (\w+)")
_WORD = re.compile(r"\w+")


class Statement(Struct, frozen=True):
    """A view or a macro, and each word of its text."""

    name: str
    sql: str
    words: frozenset[str]


@cache
def read_statements(file: str) -> dict[str, Statement]:
    """Return the statements of a file of the package `schemas` by name, in the file's order."""
    text = resources.files("group_coordinator.schemas").joinpath(file).read_text("utf-8")
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    statements = {}
    for sql in filter(None, map(str.strip, re.split(r";$", plain, flags=re.MULTILINE))):
        head = _HEAD.match(sql)
        assert head, sql
        statements[head[1]] = Statement(head[1], sql, words_of(sql))
    return statements


def words_of(sql: str) -> frozenset[str]:
    """Return the words of a text in lower case: each name of a table is among them."""
    return frozenset(_WORD.findall(sql.lower()))
