"""Tests of the page of trials, which is rendered from reports, and of keeping a report."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeVar, get_origin, get_type_hints

import pytest
from msgspec import Struct
from typer.testing import CliRunner

from group_coordinator.pipeline.errors import Failure
from tests.support import kept
from tests.support.kept import keep, read
from tests.trials import page
from tests.trials.__main__ import trial_app as app
from tests.trials.gateways.promises import DENSE
from tests.trials.gateways.trial import GatewaysReport
from tests.trials.malformed import trial
from tests.trials.malformed.trial import MalformedReport
from tests.trials.page import PAGE, render
from tests.trials.simulation.promises import PROMISES, RECORD_FIRST
from tests.trials.simulation.runs import Finding
from tests.trials.simulation.trial import Report
from tests.trials.torture.run import TortureReport

R = TypeVar("R", bound=Struct)


def blank(report: type[R], **figures: object) -> R:
    """Return a report with only these figures."""
    hints = get_type_hints(report)
    fields = {name: (get_origin(hint) or hint)() for name, hint in hints.items()}
    return report(**{**fields, **figures})


@pytest.fixture
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")


def test_the_page_is_what_the_kept_reports_say() -> None:
    """`python -m tests.trials page` renders it again."""
    assert PAGE.read_text("utf-8") == render()


@pytest.mark.usefixtures("nothing_kept")
def test_without_a_report_it_says_so_and_has_the_faults_all_the_same() -> None:
    text = render()
    assert text.count("No run is kept.") == 6
    assert "| db147ac |" in text


@pytest.mark.usefixtures("nothing_kept")
def test_a_path_of_the_machine_is_not_kept() -> None:
    command = "python -m tests.trials broker --kafka-libs {0} --root={0} --seed 1 --record"
    keep(page.RESULTS, "malformed", command.format("/a/b"), blank(MalformedReport))
    found = read(page.RESULTS, "malformed", MalformedReport)
    assert found is not None
    assert found.command == command.format("FOLDER")


@pytest.mark.usefixtures("nothing_kept")
def test_a_report_is_kept_with_its_command_its_commit_and_its_machine() -> None:
    report = blank(MalformedReport, events=1_234_567, errors={"NONE": 3})
    keep(
        page.RESULTS,
        "malformed",
        "python -m tests.trials malformed",
        report,
        note="Beside other work.",
    )
    found = read(page.RESULTS, "malformed", MalformedReport)
    assert found is not None
    assert (found.report, found.command) == (report, "python -m tests.trials malformed")
    assert len(found.commit.removesuffix("-dirty")) >= 7
    text = render()
    for said in ("1,234,567 events", found.commit, found.host.machine(), "Beside other work."):
        assert said in text


@pytest.mark.full
@pytest.mark.usefixtures("nothing_kept")
def test_a_run_that_was_interrupted_says_what_it_did() -> None:
    keep(
        page.RESULTS,
        "simulate",
        "c",
        blank(Report, runs=7, interrupted=True, checks={RECORD_FIRST: 4321}),
    )
    keep(
        page.RESULTS,
        "torture",
        "c",
        blank(TortureReport, kills={"node": 40, "jvm": 2}, interrupted=True),
    )
    text = render()
    assert "interrupted: the figures are of the 7 runs that ended" in text
    assert "interrupted: after 42 kills the promises were checked once more" in text
    assert "| 4,321 |" in text


@pytest.mark.usefixtures("nothing_kept")
def test_a_broken_promise_is_on_the_page() -> None:
    finding = Finding(5, 100, "a promise", "so", "d", [], [], "simulate --seed 5")
    keep(page.RESULTS, "simulate", "c", blank(Report, findings=[finding]))
    assert "**Broken: a promise.** so. `simulate --seed 5`" in render()


def test_every_promise_of_the_simulation_is_explained() -> None:
    assert set(page.SIMULATED_PROMISES) == PROMISES


@pytest.mark.usefixtures("nothing_kept")
def test_gateways_have_their_figures_on_the_page() -> None:
    counts = {"records": 7_654_321}
    keep(
        page.RESULTS, "gateways", "c", blank(GatewaysReport, counts=counts, checks={DENSE: 54_321})
    )
    text = render()
    assert "| records | 7,654,321 |" in text
    assert "| 54,321 |" in text


@pytest.mark.usefixtures("nothing_kept")
def test_whoever_records_renders_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    report = blank(MalformedReport, events=77)
    monkeypatch.setattr(trial, "run_malformed", lambda *_: report)
    done = CliRunner().invoke(app, ["malformed", "--events", "77", "--record"])
    assert done.exit_code == 0, done.output
    found = read(page.RESULTS, "malformed", MalformedReport)
    assert found is not None and found.report == report
    assert page.PAGE.read_text("utf-8") == render()
    page.PAGE.write_text("something else")
    done = CliRunner().invoke(app, ["page"])
    assert done.output == f"{page.PAGE}\n"
    assert page.PAGE.read_text("utf-8") == render()


def test_a_report_tells_of_changes_beside_its_commit_but_not_of_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two reports recorded one after the other has the same commit."""
    files = ["pipeline/a.py", "tests/bench/results/a.json", "tests/bench/README.md"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(kept, "HERE", tmp_path / "tests")
    results, dirty = tmp_path / "kept", []
    for name in reversed(files):
        (tmp_path / name).write_text("2")
        keep(results, "malformed", "c", blank(MalformedReport))
        found = read(results, "malformed", MalformedReport)
        assert found is not None
        dirty.append(found.commit.endswith("-dirty"))
    assert dirty == [False, False, True]


def test_a_report_is_kept_in_a_clone_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "HERE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(Failure, match="in a clone only: fatal: not a git repository"):
        keep(page.RESULTS, "malformed", "c", blank(MalformedReport))
