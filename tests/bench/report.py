"""Reports of benchmarks: their figures, the table, and the aims that the figures must meet.

A field's type is annotated with its `Column`, so that figure, heading and format are in one place:

    class LingerFigures(Struct):
        linger_ms: Annotated[int, Column("linger.ms")]
        p50_ms: Annotated[float, Column("p50 ms", ".0f", bar="p50")]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from msgspec import Struct

_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Column(NamedTuple):
    """The rendering of a field: under `title`, divided by `unit`, in Python's format `format`.

    `bar` is the title of an additional column of bars. The value `absent` means not measured, and
    leaves the cell empty. A mapping of counts is shown as their sum.
    """

    title: str
    format: str = ""
    unit: float = 1
    bar: str | None = None
    absent: int | None = None

    def cell(self, value: Any) -> object:
        """Return the text of a value; without a format, the value itself."""
        total = sum(value.values()) if isinstance(value, Mapping) else value
        if total == self.absent:
            return ""
        return format(total / self.unit, self.format) if self.format else total


class Table(NamedTuple):
    """Rows of figures, ready to be read."""

    columns: list[str]
    rows: list[list[object]]


class Aim(Struct):
    """A bound on one figure: `most` true is an upper bound, false a lower one."""

    figure: str
    unit: str
    bound: float
    found: float
    most: bool = True

    @property
    def met(self) -> bool:
        """Whether the figure keeps to its bound."""
        return self.found <= self.bound if self.most else self.found >= self.bound

    def words(self) -> tuple[str, str, str]:
        """Return the aim, the measured value, and `met` or `missed`."""
        sign = "<=" if self.most else ">="
        aim = f"{self.figure} {sign} {_number(self.bound)} {self.unit}".rstrip()
        return aim, _number(self.found), "met" if self.met else "missed"


class Report(Struct):
    """The base of every benchmark's report; `--json` prints its fields."""

    def title(self) -> str | None:
        """Return the line over the table."""
        return None

    def rows(self) -> Sequence[Struct]:
        """Return the figures of each row, all of one type with a `Column` for each shown field."""
        raise NotImplementedError

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the last rows of the table, by name: ratios by the titles of columns."""
        return {}

    def aims(self) -> list[Aim]:
        """Return the aims of the benchmark with this run's values; a benchmark may have none."""
        return []

    def table(self) -> Table:
        """Return the rows and the ratios, with the bars."""
        fields = [list(_fields(row)) for row in self.rows()]
        columns: dict[str, list[object]] = {}
        for cells in zip(*fields, strict=True):
            column, values = cells[0][0], [value for _, value in cells]
            columns[column.title] = [column.cell(value) for value in values]
            if column.bar is not None:
                largest = max(values)
                columns[column.bar] = [bar(value, largest) for value in values]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        for name, by_title in self.ratios().items():
            numbers = [f"{by_title[title]:.2f}" if title in by_title else "" for title in columns]
            rows.append([name, *numbers[1:]])
        return Table(list(columns), rows)


def bar(value: float, largest: float) -> str:
    """Return a bar as long as the value's share of the largest, to an eighth of a character."""
    eighths = round(8 * _BAR_WIDTH * max(0.0, value) / largest) if largest > 0 else 0
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _fields(row: Struct) -> Iterator[tuple[Column, Any]]:
    """Yield the shown fields of a row and of the Structs in it."""
    for name, hint in get_type_hints(type(row), include_extras=True).items():
        value = getattr(row, name)
        if isinstance(value, Struct):
            yield from _fields(value)
        for shown in getattr(hint, "__metadata__", ()):
            yield shown, value


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
