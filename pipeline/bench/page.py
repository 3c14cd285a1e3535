"""A run of all benchmarks as one Markdown page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.bench.tables import table_of

if TYPE_CHECKING:
    from pipeline.bench.everything import Everything, Section

_QUICK = (
    "**A quick run: every benchmark at its smallest. It shows that all of them run; its figures "
    "are of machines that are still warming up, and say nothing.**"
)


def render(run: Everything) -> str:
    """The page: the machine, every aim, then each benchmark with its command and its table."""
    parts = ["# Benchmarks", "\n".join(f"* {line}" for line in run.host.lines())]
    if run.quick:
        parts.append(_QUICK)
    parts += ["## Aims", _aims(run.sections)]
    for section in run.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _aims(sections: Sequence[Section]) -> str:
    rows: list[list[object]] = []
    for section in sections:
        name = _name(section)
        for aim in section.aims:
            what, _, found = aim.line().partition(": ")
            value, _, outcome = found.rpartition(", ")
            rows.append([name, what, value, outcome])
        if section.failure is not None:
            rows.append([name, "runs", "", "failed"])
    return markdown(["bench", "aim", "found", ""], rows)


def _name(section: Section) -> str:
    return section.command.removeprefix("group-coordinator bench ")


def _section(section: Section) -> list[str]:
    parts = [f"## {_name(section)}", section.what]
    parts.append(f"```\n{section.command}\n```")
    if section.failure is not None:
        return [*parts, f"Failed after {section.seconds:.0f} s: `{section.failure}`"]
    table = table_of(section.report)
    if table.title is not None:
        parts.append(f"{table.title[0].upper()}{table.title[1:]}:")
    parts.append(markdown(table.columns, table.rows))
    parts += ["\n".join(f"* {aim.line()}" for aim in section.aims)] if section.aims else []
    return [*parts, f"It took {section.seconds:.0f} s."]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of a Markdown page."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
