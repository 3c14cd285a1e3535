"""Rows on standard output: a table for people, JSON Lines or CSV for programs.

* JSON and CSV have the names that the views' columns have (schemas/VIEWS.md), every value whole,
  and times of UTC with their Z.
* A table has a row a line, as Kafka's tools print it. What a line has no room for is cut, in a
  terminal only.
* What others have named (groups, clients, topics) may hold any character. One that is not to be
  seen is written out in a table (`pipeline.quoting`), in CSV on a terminal, and always in JSON.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from group_coordinator.pipeline.quoting import quoted, quoted_lines

if TYPE_CHECKING:
    from group_coordinator.pipeline.monitor.catalog import Result


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Format = Annotated[
    OutputFormat,
    typer.Option("--format", help="A table for people, JSON Lines or CSV for programs."),
]


class Column(NamedTuple):
    """A column's heading, the width that it has at least, and the Struct's field that it shows."""

    name: str
    width: int = 15
    field: str = ""


# A cell of a table that has to be cut keeps so many characters at least.
_LEAST = 12
# What a line of a query's result may have where there is no terminal.
_PLAIN_WIDTH = 160
# A column is no wider than this for its longest texts, which move what follows them: padded to a
# name of 30 kB, a table of 25 rows has 800 kB.
_WIDEST = 100
_SIMPLE = (str, int, float, bool, type(None))
_INT64 = range(-(2**63), 2**64)


def encoded(value: Any) -> str:
    """A value as one line of JSON."""
    text = msgspec.json.encode(_whole(value)).decode()
    if text.isprintable():
        return text
    # JSON allows in a text what drives a terminal, but for the oldest of it.
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def print_data(format_: OutputFormat, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows for programs: JSON or CSV."""
    if format_ is OutputFormat.JSON:
        for row in rows:
            sys.stdout.write(encoded(dict(zip(names, row, strict=True))) + "\n")
    elif format_ is OutputFormat.CSV:
        shown = quoted if sys.stdout.isatty() else str
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(shown, names))
        writer.writerows([shown(_field(value)) for value in row] for row in rows)


def print_rows(
    format_: OutputFormat,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    columns: Sequence[Column] | None = None,
) -> None:
    """Print rows in any format; a table's columns are headed by the names if they are not given."""
    if format_ is OutputFormat.TABLE:
        print_table(columns or [Column(name, 0) for name in names], rows)
    else:
        print_data(format_, names, rows)


def print_structs(
    format_: OutputFormat,
    kind: type[msgspec.Struct],
    rows: Iterable[msgspec.Struct],
    columns: Sequence[Column] | None = None,
) -> None:
    """Print Structs of one type, a row each, in any format; a table's columns may be chosen."""
    if format_ is OutputFormat.TABLE and columns is not None:
        print_table(columns, ([getattr(row, each.field) for each in columns] for row in rows))
    else:
        print_rows(format_, kind.__struct_fields__, map(msgspec.structs.astuple, rows))


def print_result(format_: OutputFormat, result: Result) -> None:
    """Print what a query found; a table of rows that are too wide has a line for each value."""
    if format_ is not OutputFormat.TABLE:
        print_data(format_, result.columns, result.rows)
        return
    limit = _terminal_width() or _PLAIN_WIDTH
    columns = [Column(name, 0) for name in result.columns]
    texts = _texts(columns, result.rows)
    least = [min(width, _LEAST) for width in _widths(columns, texts)]
    whole = sum(_widths(columns, texts)) + len(columns)
    fits = whole <= limit or (_terminal_width() and sum(least) + len(columns) <= limit)
    if fits:
        _print_lines(columns, texts)
    else:
        _print_upright(texts)
    tell(counted(len(result.rows), "row"))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print the heading and the rows; a value that is not known is `-`.

    It is made column by column and written at once, which is far faster than row by row.
    """
    _print_lines(columns, _texts(columns, rows))


def _texts(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Each column's texts, its heading first."""
    texts = [[_cell(value) for value in column] for column in zip(*rows, strict=True)]
    return [
        [quoted(column.name), *values]
        for column, values in zip(columns, texts or [[]] * len(columns), strict=True)
    ]


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]]) -> list[int]:
    return [max(each.width, *map(len, column)) for each, column in zip(columns, texts, strict=True)]


def _print_lines(columns: Sequence[Column], texts: list[list[str]]) -> None:
    widths = _widths(columns, texts)
    limit = _terminal_width()
    if limit is None:
        widths = [
            max(column.width, min(width, _WIDEST))
            for column, width in zip(columns, widths, strict=True)
        ]
    elif sum(widths) + len(widths) - 1 > limit:
        widths = _cut(widths, limit - len(widths) + 1)
        texts = [
            [text if len(text) <= width else text[: width - 1] + "…" for text in column]
            for column, width in zip(texts, widths, strict=True)
        ]
    line = " ".join(f"{{:<{width}}}" for width in widths).format
    sys.stdout.write("".join(f"{text.rstrip()}\n" for text in map(line, *texts)))


def _cut(widths: list[int], room: int) -> list[int]:
    """The widths with the widest made narrower, until there is room or none is to be cut more."""
    cut = list(widths)
    while sum(cut) > room and max(cut) > _LEAST:
        cut[cut.index(max(cut))] -= 1
    return cut


def _print_upright(texts: list[list[str]]) -> None:
    names, *rows = zip(*texts, strict=True)
    width = max(map(len, names))
    for number, row in enumerate(rows, 1):
        sys.stdout.write(f"--- row {number}\n")
        for name, text in zip(names, row, strict=True):
            sys.stdout.write(f"{name:<{width}}  {text}\n")


def _terminal_width() -> int | None:
    """How many characters a line of the terminal has; None where output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return str(value) if isinstance(value, int | float) else quoted(_field(value))


def _field(value: Any) -> str:
    """A value of a CSV file: a text as it is, nothing for null, and else what JSON has."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = encoded(value)
    return text[1:-1] if text.startswith('"') else text


def _whole(value: Any) -> Any:
    """A value as JSON is to have it: times with their zone, and numbers that are no 64 bits."""
    if isinstance(value, int) and value not in _INT64:
        return str(value)
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, dict):
        return {str(name): _whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return value


def tell(text: str) -> None:
    """Print a line for people, on standard error: the output stays what programs read."""
    typer.echo(quoted_lines(text), err=True)


def counted(number: int, what: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
