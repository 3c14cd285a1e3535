"""Rows on standard output: a table for people, JSON Lines or CSV for programs.

* JSON and CSV have the column names of the views (schemas/VIEWS.md), complete values, and times in
  UTC with a `Z`.
* A table has one line for each row, as Kafka's tools print it. In a terminal, values that do not
  fit on the line are cut.
* Unprintable characters of names are escaped in a table (`pipeline.quoting`), in CSV on a terminal,
  and always in JSON.
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
    """The output format of rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Format = Annotated[
    OutputFormat,
    typer.Option("--format", help="A table for people, JSON Lines or CSV for programs."),
]


class Column(NamedTuple):
    """A column of a table: its heading, least width in characters, and field of the Struct."""

    name: str
    width: int = 15
    field: str = ""


# The least number of characters that a cut cell keeps.
_LEAST = 12
# The width of a query's result without a terminal, characters.
_PLAIN_WIDTH = 160
# The most characters to which a column is padded without a terminal: padded to a name of 30 kB, a
# table of 25 rows would have 800 kB.
_WIDEST = 100
_SIMPLE = (str, int, float, bool, type(None))
_INT64 = range(-(2**63), 2**64)


def to_json_line(value: Any) -> str:
    """Return a value as one line of JSON."""
    text = msgspec.json.encode(_json_value(value)).decode()
    if text.isprintable():
        return text
    # JSON strings may contain terminal control characters, except those below U+0020.
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def print_data(format_: OutputFormat, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows for programs: JSON or CSV."""
    if format_ is OutputFormat.JSON:
        for row in rows:
            sys.stdout.write(to_json_line(dict(zip(names, row, strict=True))) + "\n")
    elif format_ is OutputFormat.CSV:
        shown = quoted if sys.stdout.isatty() else str
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(shown, names))
        writer.writerows([shown(_csv_value(value)) for value in row] for row in rows)


def print_rows(
    format_: OutputFormat,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    columns: Sequence[Column] | None = None,
) -> None:
    """Print rows in any format; `columns` are those of a table, by default `names`."""
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
    """Print Structs of one type, one row each; only a table uses `columns`."""
    if format_ is OutputFormat.TABLE and columns is not None:
        print_table(columns, ([getattr(row, each.field) for each in columns] for row in rows))
    else:
        print_rows(format_, kind.__struct_fields__, map(msgspec.structs.astuple, rows))


def print_result(format_: OutputFormat, result: Result) -> None:
    """Print the result of a query; a table that is too wide has one line for each value."""
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
        _print_vertically(texts)
    print_note(plural(len(result.rows), "row"))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print the heading and the rows; a null is printed as `-`.

    Formatting by columns and writing at once is far faster than by rows.
    """
    _print_lines(columns, _texts(columns, rows))


def _texts(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> list[list[str]]:
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
    """Return the widths, with the widest reduced until all fit or none can be reduced further."""
    cut = list(widths)
    while sum(cut) > room and max(cut) > _LEAST:
        cut[cut.index(max(cut))] -= 1
    return cut


def _print_vertically(texts: list[list[str]]) -> None:
    names, *rows = zip(*texts, strict=True)
    width = max(map(len, names))
    for number, row in enumerate(rows, 1):
        sys.stdout.write(f"--- row {number}\n")
        for name, text in zip(names, row, strict=True):
            sys.stdout.write(f"{name:<{width}}  {text}\n")


def _terminal_width() -> int | None:
    """Return the width of the terminal in characters; None without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return str(value) if isinstance(value, int | float) else quoted(_csv_value(value))


def _csv_value(value: Any) -> str:
    """Return a value for CSV: a string as it is, "" for null, unquoted JSON for other types."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = to_json_line(value)
    return text[1:-1] if text.startswith('"') else text


def _json_value(value: Any) -> Any:
    """Return a value for JSON: times have a zone, and integers beyond 64 bits are strings."""
    if isinstance(value, int) and value not in _INT64:
        return str(value)
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, dict):
        return {str(name): _json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    return value


def print_note(text: str) -> None:
    """Print a line for people, on standard error, so that programs can parse standard output."""
    typer.echo(quoted_lines(text), err=True)


def plural(number: int, what: str) -> str:
    """Return a number with its noun: `1 group`, `2 groups`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
