"""The pages' figures have the commit that they were measured at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.figures import PRODUCT, Figure, age, changes_since, figures
from tests.pages import PAGES, TOP
from tests.support.host import this_host
from tests.support.kept import Kept

RESULTS = sorted(TOP.glob("tests/*/results/*.json"))


def _git(repository: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *words]
    return subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_figure_tells_how_many_commits_have_changed_the_product_since(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    commits = []
    for number, folder in enumerate((PRODUCT[0], "tests", PRODUCT[1], PRODUCT[1])):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "file").write_text(str(number))
        _git(tmp_path, "add", "-A")
        _git(tmp_path, "commit", "-qm", "one")
        commits.append(_git(tmp_path, "rev-parse", "--short=7", "HEAD"))
    assert [changes_since(each, tmp_path) for each in commits] == [2, 2, 1, 0]
    with pytest.raises(LookupError, match="0000000"):
        changes_since("0000000", tmp_path)


def test_a_commit_that_only_this_clone_has_is_not_in_the_history(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-qm", "kept", "--allow-empty")
    _git(tmp_path, "commit", "-qm", "left", "--allow-empty")
    left = _git(tmp_path, "rev-parse", "--short=7", "HEAD")
    _git(tmp_path, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(LookupError, match=left):
        changes_since(left, tmp_path)


def test_a_figure_is_found_by_its_date_and_commit(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# P\n\n**Fast** (`x`, 3 May 2026, 0123abc; and 4 May 2026, 89abcde): 5 ms.\n")
    assert list(figures([page])) == [Figure(page, 3, "0123abc"), Figure(page, 3, "89abcde")]


def test_a_figure_that_is_rendered_is_found_by_when_its_run_ended(tmp_path: Path) -> None:
    report = {"events": 3}
    kept = Kept("c", "2026-05-03 17:43", "0123abc-dirty", this_host(), report)
    page = tmp_path / "page.md"
    page.write_text("".join(kept.head()))
    assert [figure.commit for figure in figures([page])] == ["0123abc"]


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: f"{file.parent.parent.name}-{file.stem}")
def test_each_recorded_result_is_a_figure_of_its_folder_s_pages(file: Path) -> None:
    pages = [page for page in PAGES if page.parent == file.parent.parent]
    commit = msgspec.json.decode(file.read_bytes())["commit"].removesuffix("-dirty")
    assert commit in {figure.commit for figure in figures(pages)}


@pytest.mark.parametrize("folder", ["bench", "trials"])
def test_the_pages_of_figures_name_the_command_that_tells_their_age(folder: str) -> None:
    assert "`python -m tests.figures`" in (TOP / "tests" / folder / "README.md").read_text("utf-8")


def test_a_shallow_clone_says_that_it_cannot_tell_an_age(tmp_path: Path) -> None:
    full, shallow = tmp_path / "full", tmp_path / "shallow"
    full.mkdir()
    _git(full, "init", "-q")
    for name in ("one", "two"):
        _git(full, "commit", "-qm", name, "--allow-empty")
    first, last = _git(full, "rev-list", "HEAD").splitlines()[::-1]
    assert (age(first, full), age(last, full)) == ("of this product", "of this product")
    _git(tmp_path, "clone", "-q", "--depth=1", full.as_uri(), str(shallow))
    unknown = "age unknown: this clone is shallow; `git fetch --unshallow` brings the history"
    assert [age(commit, shallow) for commit in (first, last)] == [unknown, unknown]


def test_each_commit_of_the_pages_is_in_the_history() -> None:
    if _git(TOP, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("a shallow clone has no history to look at")
    found = list(figures())
    assert found
    for figure in found:
        changes_since(figure.commit)
