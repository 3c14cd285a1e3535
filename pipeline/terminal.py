"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from group_coordinator.pipeline.quoting import quoted

# The width of lines in a file or pipe, characters.
PLAIN_WIDTH = 160


def open_console() -> Console:
    """Open standard output; in a file or pipe a line has `PLAIN_WIDTH` characters."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def grid(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> Table:
    """Format rows as a table; a column with a number in the first row is right-aligned."""
    table = Table(title=title, title_justify="left")
    for position, name in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][position], int | float)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(quoted(_text(value))) for value in row))
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return str(value)
