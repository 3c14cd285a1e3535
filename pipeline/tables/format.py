"""The number by which a table says how its rows are to be read (`pipeline.tables.columns`).

Verbs that only read ask it, and wait for no import of Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The table's property; a table without it has format 1.
FORMAT_PROPERTY = "groupCoordinator.format"
FORMAT = 1


def is_known_format(properties: Mapping[str, str | None]) -> bool:
    """Whether this release can read the rows of a table with these properties."""
    text = properties.get(FORMAT_PROPERTY) or str(FORMAT)
    return text.isdigit() and int(text) <= FORMAT
