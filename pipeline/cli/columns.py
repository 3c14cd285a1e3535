"""Rows in columns of plain text, a row a line, as Kafka's tools print them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import typer

from pipeline.cli.options import encoded


class Column(NamedTuple):
    """A column's heading, and the width that it has at least."""

    name: str
    width: int = 15


def print_columns(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print the heading and the rows; a value that is not known is `-`."""
    texts = [[column.name for column in columns]]
    texts += [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [
        max(column.width, *(len(row[place]) for row in texts))
        for place, column in enumerate(columns)
    ]
    for row in texts:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(" ".join(padded).rstrip() + "\n")


def print_json(rows: Iterable[msgspec.Struct]) -> None:
    """Print rows as JSON Lines."""
    for row in rows:
        sys.stdout.write(encoded(row) + "\n")


def tell(text: str) -> None:
    """Print a line for people, on standard error: the output stays what programs read."""
    typer.echo(text, err=True)


def counted(number: int, what: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
