"""A run of all benchmarks as one Markdown page: the machine, every aim, then each benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from tests.bench.report import Aim, Report
from tests.support.host import Host

_QUICK = (
    "**A quick run: every benchmark at its smallest. It shows that all of them run; its figures "
    "are of machines that are still warming up, and say nothing.**"
)


class Section(Struct):
    """One benchmark of a run: its report and the aims, or why it failed."""

    command: str
    what: str
    seconds: float
    # A report, as `Any` for msgspec: each benchmark has a type of its own.
    report: Any = None
    aims: list[Aim] = []
    failure: str | None = None

    def _name(self) -> str:
        return self.command.removeprefix("python -m tests.bench ")

    def aim_rows(self) -> list[list[object]]:
        """Its lines of the table of all aims."""
        if self.failure is not None:
            return [[self._name(), "runs", "", "failed"]]
        return [[self._name(), *aim.words()] for aim in self.aims]

    def parts(self) -> Iterator[str]:
        """Its paragraphs."""
        yield from (f"## {self._name()}", self.what, f"```\n{self.command}\n```")
        if self.failure is not None:
            yield f"Failed after {self.seconds:.0f} s: `{self.failure}`"
            return
        report: Report = self.report
        if (title := report.title()) is not None:
            yield f"{title[0].upper()}{title[1:]}:"
        yield markdown(*report.table())
        if self.aims:
            yield "\n".join("* {}: {}, {}".format(*aim.words()) for aim in self.aims)
        yield f"It took {self.seconds:.0f} s."


class Page(Struct):
    """One run of all benchmarks; `quick` is one in which each was as small as it runs."""

    host: Host
    quick: bool
    sections: list[Section]

    def render(self) -> str:
        """The page's text."""
        parts = ["# Benchmarks", "\n".join(f"* {line}" for line in self.host.lines())]
        parts += [_QUICK] if self.quick else []
        aims = [row for section in self.sections for row in section.aim_rows()]
        parts += ["## Aims", markdown(["bench", "aim", "found", ""], aims)]
        for section in self.sections:
            parts += section.parts()
        return "\n\n".join(parts) + "\n"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of a Markdown page."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
