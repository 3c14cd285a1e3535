"""Marks that outlive a table: another table says, for good, that it was made.

A table that cannot be found is then known to be gone, and is not taken for one that never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.tables.store import has_table, open_table, table_uri

if TYPE_CHECKING:
    from group_coordinator.schemas.tables import Table


def set_mark(root: str, table: Table, mark: str) -> None:
    """Have a table say the mark, unless it does: a version of an application of that name."""
    Appender(table_uri(root, table)).append(None, mark, 1)


def has_mark(root: str, table: Table, mark: str) -> bool:
    """Return whether there is the table and it says the mark."""
    if not has_table(root, table):
        return False
    return open_table(root, table).transaction_version(mark) is not None
