"""Results on the screen: as a table for people, as CSV or JSON Lines for programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table as Grid

from pipeline.tables.sql import Result

# Columns of a line that goes to a file or a pipe.
PLAIN_WIDTH = 160


class Format(str, Enum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def show(result: Result, format_: Format = Format.TABLE, title: str | None = None) -> None:
    """Print the rows to standard output."""
    if format_ is Format.JSON:
        for row in result.as_dicts():
            sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
    elif format_ is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    else:
        console = Console()
        if not console.is_terminal:
            console.width = PLAIN_WIDTH
        console.print(grid(result.columns, result.rows, title))
        count = len(result.rows)
        console.print(f"{count} row{'' if count == 1 else 's'}", style="dim")


def show_structs(rows: Sequence[Struct], json: bool) -> None:
    """Print Structs of one kind, a row each, as a table or as JSON Lines."""
    if json:
        for row in rows:
            sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
        return
    columns = rows[0].__struct_fields__ if rows else ()
    values = [msgspec.structs.astuple(row) for row in rows]
    show(Result(list(columns), values))


def grid(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> Grid:
    """A table for the terminal; numbers to the right."""
    table = Grid(title=title, title_justify="left")
    for position, name in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][position], int | float)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return str(value)
