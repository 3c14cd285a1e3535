"""Tests of the figures on the pages, which are rendered from the recorded reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.bench import machine, page
from tests.bench.__main__ import bench_app
from tests.bench.everything import PLANS
from tests.bench.machine import Load, MachineReport
from tests.bench.page import PAGES, marked, render
from tests.support.kept import read

REPORT = MachineReport([Load("heartbeats", 100, 100, 500, 123_456.7, 700_000.0, 5.7, 900)])
TYPED = """\
By hand.

<!-- figures: machine -->

**Typed** (`machine`, 3 May 2026, 0123abc): 5 requests/s.

<!-- end of figures -->

<!-- figures: verbs -->

Typed, too.

<!-- end of figures -->

Beside it.
"""


@pytest.fixture
def one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a page of typed figures, and a folder without results."""
    file = tmp_path / "README.md"
    file.write_text(TYPED)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(page, "PAGES", [file])
    return file


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_the_pages_are_what_the_kept_reports_say(file: Path) -> None:
    """`python -m tests.bench page` renders them again."""
    text = file.read_text("utf-8")
    assert text == render(text)


def test_each_benchmark_has_one_place_on_the_pages() -> None:
    places = [name for file in PAGES for name in marked(file.read_text("utf-8"))]
    assert sorted(places) == sorted(plan.name for plan in PLANS)


def test_whoever_records_replaces_what_was_typed_and_nothing_beside_it(
    one_page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "bench_machine", lambda *_: REPORT)
    done = CliRunner().invoke(bench_app, ["machine", "--batches", "1", "--record"])
    assert done.exit_code == 0, done.output
    kept = read(page.RESULTS, "machine", MachineReport)
    assert kept is not None and kept.report == REPORT
    text = one_page.read_text("utf-8")
    for said in (kept.command, kept.commit, kept.host.machine(), "| heartbeats | 100 | 100 |"):
        assert said in text
    assert "* heartbeats >= 200,000 a second: 123,457, missed\n" in text
    assert "0123abc" not in text
    before, after = (
        TYPED.split("**Typed**", maxsplit=1)[0],
        TYPED[TYPED.index("<!-- figures: verbs") :],
    )
    assert text.startswith(before) and text.endswith(after)


def test_a_page_is_rendered_alone_and_always_the_same(
    one_page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "bench_machine", lambda *_: REPORT)
    CliRunner().invoke(bench_app, ["machine", "--json", "--record"])
    rendered = one_page.read_text("utf-8")
    one_page.write_text(rendered.replace("123,457", "999,999"))
    done = CliRunner().invoke(bench_app, ["page"])
    assert done.output == f"{one_page}\n"
    assert one_page.read_text("utf-8") == rendered


@pytest.mark.usefixtures("one_page")
def test_without_a_report_what_was_typed_stays() -> None:
    assert render(TYPED) == TYPED
