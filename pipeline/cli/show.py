"""Results on standard output: as a table for people, as CSV or JSON Lines for programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.cli.options import encoded
from group_coordinator.pipeline.monitor.catalog import Result
from group_coordinator.pipeline.terminal import grid, open_console


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def show(result: Result, format_: Format = Format.TABLE) -> None:
    """Print the rows of a query."""
    if format_ is Format.JSON:
        for row in result.as_dicts():
            sys.stdout.write(encoded(row) + "\n")
    elif format_ is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    else:
        console = open_console()
        console.print(grid(result.columns, result.rows))
        count = len(result.rows)
        console.print(f"{count} row{'' if count == 1 else 's'}", style="dim")


def show_structs(rows: Sequence[Struct], json: bool) -> None:
    """Print Structs of one type, a row each, as a table or as JSON Lines."""
    if json:
        for row in rows:
            sys.stdout.write(encoded(row) + "\n")
        return
    columns = rows[0].__struct_fields__ if rows else ()
    values = [msgspec.structs.astuple(row) for row in rows]
    show(Result(list(columns), values))
