"""Rendering of the figures in README.md and LIMITS.md, from the recorded reports.

A page is written by hand. The figures of a benchmark are between two marks:

    <!-- figures: machine -->
    ...
    <!-- end of figures -->

They are rendered from `results` if there is a report, and do not change if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.bench.everything import PLANS, Plan
from tests.bench.report import Report
from tests.support.kept import Kept, markdown, read

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGES = [HERE / "README.md", HERE / "LIMITS.md"]
_FIGURES = re.compile(r"(<!-- figures: (\S+) -->\n\n).*?(<!-- end of figures -->\n)", re.S)


def render(text: str) -> str:
    """Return a page with new figures."""
    plans = {plan.name: plan for plan in PLANS}

    def figures(found: re.Match[str]) -> str:
        plan = plans[found[2]]
        kept = read(RESULTS, plan.name, plan.report)
        if kept is None:
            return found[0]
        return "".join([found[1], *(f"{part}\n" for part in _parts(plan, kept)), found[3]])

    return _FIGURES.sub(figures, text)


def write_pages() -> list[Path]:
    """Write the pages; returns their files."""
    for page in PAGES:
        page.write_text(render(page.read_text("utf-8")), "utf-8")
    return PAGES


def marked(text: str) -> list[str]:
    """Return the benchmarks that have marks on a page."""
    return [found[2] for found in _FIGURES.finditer(text)]


def _parts(plan: Plan, kept: Kept[Report]) -> Iterator[str]:
    report = kept.report
    yield f"**`{plan.name}`**: {plan.what()}\n"
    yield from kept.head()
    if (title := report.title()) is not None:
        yield f"{title}:\n"
    yield f"{markdown(*report.table())}\n"
    if aims := report.aims():
        lines = ("* {}: {}, {}".format(*aim.words()) for aim in aims)
        yield "\n".join(lines) + "\n"
