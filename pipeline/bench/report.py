"""A benchmark's report on the screen."""

from __future__ import annotations

import sys

import msgspec
from msgspec import Struct

from pipeline.bench.tables import table_of
from pipeline.terminal import grid, open_console


def show(report: Struct, json: bool) -> None:
    """Print a benchmark's report as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    table = table_of(report)
    open_console().print(grid(table.columns, table.rows, table.title))
