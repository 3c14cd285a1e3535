"""The format number of a table, which tells how its rows are read (`pipeline.tables.columns`).

It is a separate module so that commands that only read tables do not import Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The table property with the format; without it the format is 1.
FORMAT_PROPERTY = "groupCoordinator.format"
FORMAT = 1


def is_known_format(properties: Mapping[str, str | None]) -> bool:
    """Return whether this release can read the rows of a table with these properties."""
    text = properties.get(FORMAT_PROPERTY) or str(FORMAT)
    return text.isdigit() and int(text) <= FORMAT
