"""A table's folder that is away for one look."""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.pipeline.tables.store import has_table
from group_coordinator.schemas.tables import Table


def away_once() -> Callable[[str, Table], bool]:
    """Return `has_table` whose first answer is False."""
    looks: list[Table] = []

    def is_there(root: str, table: Table) -> bool:
        looks.append(table)
        return len(looks) > 1 and has_table(root, table)

    return is_there
