"""Marks: permanent notes in one table that another table was created.

If the other table is missing and has a mark, it is lost; without a mark it was never created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import Appender
from group_coordinator.pipeline.tables.store import has_table, open_table, table_uri

if TYPE_CHECKING:
    from group_coordinator.schemas.tables import Table


def set_mark(root: str, table: Table, mark: str) -> None:
    """Set a mark in a table: the transaction identifier `mark` with version 1."""
    Appender(table_uri(root, table)).append(None, mark, 1)


def has_mark(root: str, table: Table, mark: str) -> bool:
    """Return whether the table exists and has the mark."""
    if not has_table(root, table):
        return False
    return open_table(root, table).transaction_version(mark) is not None
