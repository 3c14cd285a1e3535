"""Tests of the mutants trial: no mutant is stale, and the trial reports surviving mutants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.errors import Failure
from tests.ends import check_end
from tests.pages import TOP
from tests.support.kept import keep
from tests.trials import page
from tests.trials.__main__ import trial_app as app
from tests.trials.mutants import trial
from tests.trials.mutants.copied import Copied, copy_checkout
from tests.trials.mutants.mutant import Mutant, read_table
from tests.trials.mutants.trial import (
    EQUIVALENT,
    KILLED,
    NOT_JUDGED,
    SURVIVED,
    MutantsReport,
    Verdict,
    outcome_of,
    try_mutants,
)

LEAST_MUTANTS = 80


def test_each_mutant_can_be_made_and_names_tests_that_are_there() -> None:
    mutants = read_table()
    assert [fault for mutant in mutants for fault in mutant.faults(TOP)] == []
    assert len(mutants) >= LEAST_MUTANTS


def test_no_two_mutants_have_the_same_promise() -> None:
    promises = Counter(mutant.promise for mutant in read_table())
    assert [promise for promise, times in promises.items() if times > 1] == []


def test_no_mutant_uses_a_name_that_its_module_lacks(tmp_path: Path) -> None:
    """An undefined name would fail every test that reaches it, whatever the test checks."""
    for number, mutant in enumerate(read_table()):
        if mutant.file.endswith(".py"):
            text = mutant.changed((TOP / mutant.file).read_text("utf-8"))
            (tmp_path / f"m{number}.py").write_text(f"# {mutant.promise}\n{text}", "utf-8")
    command = ["-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821,F823", "."]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    check_end(done.returncode, done.stdout + done.stderr)


# --- a made-up product ----------------------------------------------------------------------------

DOUBLING = """\
def double(number: int) -> int:
    if number == 0:
        return 0
    return 2 * number
"""
TESTS = """\
from group_coordinator.coordinator.doubling import double

def test_a_number_is_doubled() -> None:
    assert double(3) == 6

def test_a_number_is_there() -> None:
    assert double(3) is not None
"""


def mutant(**fields: Any) -> Mutant:
    given = {
        "promise": "A number is doubled",
        "file": "coordinator/doubling.py",
        "stands": "2 * number",
        "becomes": "3 * number",
        "tests": ("tests/test_doubling.py::test_a_number_is_doubled",),
    }
    return Mutant(**{**given, **fields})


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """Return a checkout of one module and its tests, with cached bytecode."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for folder in ("coordinator", "tests", ".src/group_coordinator"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".src/group_coordinator/__init__.py").touch()
    (tmp_path / ".src/group_coordinator/coordinator").symlink_to("../../coordinator")
    (tmp_path / "coordinator/doubling.py").write_text(DOUBLING)
    (tmp_path / "tests/test_doubling.py").write_text(TESTS)
    return Copied(tmp_path)


@pytest.mark.full
def test_a_survivor_is_told_from_what_a_test_finds(made_up: Copied) -> None:
    nobody_looks = ("tests/test_doubling.py::test_a_number_is_there",)
    mutants = [mutant(), mutant(promise="Nobody looks", tests=nobody_looks)]
    said: list[str] = []
    report = try_mutants([made_up], mutants, said.append)
    assert [verdict.outcome for verdict in report.verdicts] == [KILLED, SURVIVED]
    assert report.unproven() == ["coordinator/doubling.py: survived: Nobody looks"]
    assert ("mutants: survived", "1") in report.rows()
    assert report.cpu_s > 0
    assert len(said) == 1 + len(mutants)
    assert (made_up.folder / "coordinator/doubling.py").read_text() == DOUBLING


@pytest.mark.full
def test_a_mutant_as_long_and_as_old_as_what_it_changes_is_run(made_up: Copied) -> None:
    file = made_up.folder / "coordinator/doubling.py"
    written = file.stat()
    assert made_up.run_tests(mutant().tests, None)[0] == pytest.ExitCode.OK
    with made_up.with_text("coordinator/doubling.py", DOUBLING.replace("2 *", "3 *")):
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert made_up.run_tests(mutant().tests, None)[0] == pytest.ExitCode.TESTS_FAILED


@pytest.mark.full
def test_a_test_that_never_ends_finds_a_mutant_that_says_so(
    made_up: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_LEAST_LIMIT_S", 0.0)
    endless = mutant(stands="return 2", becomes="while True:\n        2", hangs=True)
    report = try_mutants([made_up], [endless], print)
    assert [verdict.outcome for verdict in report.verdicts] == [KILLED]


@pytest.mark.parametrize(
    ("fields", "status", "outcome"),
    [
        ({}, 0, SURVIVED),
        ({}, 1, KILLED),
        # No test was found, or none could be imported.
        ({}, 2, NOT_JUDGED),
        ({}, 4, NOT_JUDGED),
        # The time limit was over.
        ({}, None, NOT_JUDGED),
        ({"hangs": True}, None, KILLED),
        ({"equivalent": "it is the same"}, 0, EQUIVALENT),
        ({"equivalent": "so it is said"}, 1, NOT_JUDGED),
        ({"equivalent": "so it is said", "hangs": True}, None, NOT_JUDGED),
    ],
)
def test_only_a_test_that_fails_finds_a_mutant(
    fields: dict[str, Any], status: int | None, outcome: str
) -> None:
    judged, why = outcome_of(mutant(**fields), status, "what pytest said")
    assert judged == outcome
    assert bool(why) == (outcome in (EQUIVALENT, NOT_JUDGED))


@pytest.mark.full
def test_a_test_that_fails_with_nothing_broken_ends_the_trial(made_up: Copied) -> None:
    (made_up.folder / "tests/test_doubling.py").write_text(TESTS.replace("== 6", "== 7"))
    with pytest.raises(Failure, match="with nothing broken a test fails already"):
        try_mutants([made_up], [mutant()], print)


def test_a_mutant_of_a_module_that_is_imported_from_elsewhere_ends_the_trial(
    made_up: Copied,
) -> None:
    (made_up.folder / ".src/group_coordinator/coordinator").unlink()
    with pytest.raises(Failure, match="cannot be imported"):
        made_up.check_imports(["coordinator/doubling.py"])
    elsewhere = made_up.folder / ".src/group_coordinator/coordinator"
    elsewhere.mkdir()
    (elsewhere / "doubling.py").touch()
    with pytest.raises(Failure, match="and not the copy's"):
        made_up.check_imports(["coordinator/doubling.py"])


@pytest.mark.parametrize(
    ("stale", "fault"),
    [
        (mutant(stands="return"), "has 2 times what it is to have once"),
        (mutant(file="coordinator/none.py"), "has 0 times"),
        (mutant(becomes="2 * number"), "nothing is changed"),
        (mutant(becomes="3 *"), "does not compile"),
        (mutant(tests=()), "names no test"),
        (
            mutant(tests=("tests/test_doubling.py::test_no",)),
            "there is no tests/test_doubling.py::",
        ),
        (mutant(tests=("tests/test_no.py",)), "there is no tests/test_no.py"),
    ],
)
def test_a_stale_mutant_is_told(made_up: Copied, stale: Mutant, fault: str) -> None:
    (told,) = stale.faults(made_up.folder)
    assert fault in told


def test_a_trial_that_is_interrupted_reports_on_what_it_has_done(
    made_up: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int | None] = [0, 1]

    def run_tests(*_: object) -> tuple[int | None, str]:
        if not statuses:
            raise KeyboardInterrupt
        return statuses.pop(0), ""

    monkeypatch.setattr(made_up, "run_tests", run_tests)
    report = try_mutants([made_up], [mutant(), mutant(promise="Nobody looks")], print)
    assert [verdict.outcome for verdict in report.verdicts] == [KILLED]
    assert report.interrupted
    assert (made_up.folder / "coordinator/doubling.py").read_text() == DOUBLING


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.full
def test_the_checkout_is_copied_with_its_links(tmp_path: Path) -> None:
    copied = copy_checkout(TOP, tmp_path / "copy")
    copied.check_imports(["coordinator/group/classic_group.py", "pipeline/stream/sink.py"])
    assert (copied.folder / ".src/group_coordinator/pipeline").is_symlink()
    with pytest.raises(Failure, match="a clone is copied only"):
        copy_checkout(tmp_path, tmp_path / "other")


@pytest.mark.parametrize(("outcome", "status"), [(KILLED, 0), (EQUIVALENT, 0), (SURVIVED, 1)])
def test_the_command_fails_for_a_survivor(
    monkeypatch: pytest.MonkeyPatch, outcome: str, status: int
) -> None:
    verdict = Verdict("A number is doubled", "f.py", ("t.py",), outcome, 1.5)
    monkeypatch.setattr(trial, "run_mutants", lambda *_: MutantsReport([verdict], 1, 1.0, 2.5, 2.0))
    done = CliRunner().invoke(app, ["mutants", "--only", "doubled"])
    assert f"mutants: {outcome}" in done.output
    assert done.exit_code == status
    assert ("A number is doubled" in str(done.exception)) == bool(status)


def test_the_page_tells_what_was_found_what_was_not_and_what_nobody_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    verdicts = [
        Verdict("It is found", "f.py", ("t.py::test", "u.py"), KILLED, 1.25),
        Verdict("Nobody looks", "g.py", ("t.py",), SURVIVED, 2.0),
        Verdict("Zero", "h.py", ("t.py",), EQUIVALENT, 3.0, "twice nothing is nothing"),
    ]
    keep(tmp_path, "mutants", "c", MutantsReport(verdicts, 2, 1.0, 2.5, 2.0, interrupted=True))
    text = page.render()
    for said in (
        "| It is found | `f.py` | `t.py::test`, `u.py` | 1.2 |",
        "**Not found: g.py: survived: Nobody looks**",
        "| Zero | `h.py` | twice nothing is nothing |",
        "interrupted after 3 mutants",
        "| mutants: killed | 1 |",
    ):
        assert said in text


def test_a_word_that_no_mutant_has_is_told() -> None:
    with pytest.raises(Failure, match="there is no mutant of 'nonesuch'"):
        trial.run_mutants("nonesuch", 1, print)
