"""`.ci/pythons` runs the README's test command on each Python, and reports each result."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parent.parent / ".ci"
README = "<!-- test command -->\n```sh\npython3 -m pytest\n```\n"
# A stub of Python: it answers the version query, and otherwise fails outside a clean clone.
ANSWERS = '[ "$1" = -c ] && echo "$0" && exit\n[ -d .git ] && [ ! -e not_committed ] || exit 9\n'


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o700)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    shutil.copytree(CI, top / ".ci")
    (top / "README.md").write_text(README)
    git = ["git", "-C", str(top), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        subprocess.run([*git, *command], check=True)
    (top / "not_committed").touch()
    return top


def run(checkout: Path, *releases: str) -> tuple[int, list[str]]:
    top = checkout.parent
    (top / "tmp").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{top}/bin:{os.environ['PATH']}",
        "PYENV_ROOT": str(top / "pyenv"),
        "TMPDIR": str(top / "tmp"),
    }
    done = subprocess.run(
        [checkout / ".ci" / "pythons", *releases], env=environment, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.returncode, [re.sub(r"\d+ min \d+ s", "TIME", x) for x in done.stdout.splitlines()]


def test_each_python_that_is_found_runs_the_command_of_the_readme(checkout: Path) -> None:
    top = checkout.parent
    executable(top / "bin" / "python3.98", f'{ANSWERS}echo "on the PATH: $@"')
    # pyenv puts this on the PATH for a release that is not selected.
    executable(top / "bin" / "python3.99", "exit 127")
    executable(top / "pyenv/versions/3.99.9/bin/python3", f"{ANSWERS}echo older")
    executable(top / "pyenv/versions/3.99.10/bin/python3", f'{ANSWERS}echo "by pyenv: $@"')
    status, lines = run(checkout, "3.97", "3.98", "3.99")
    assert lines == [
        "3.97  not found, neither on the PATH nor by pyenv",
        "3.98  passed  TIME  on the PATH: -m pytest",
        "3.99  passed  TIME  by pyenv: -m pytest",
    ]
    assert status == 0
    assert not list((top / "tmp").iterdir())


def test_one_that_fails_is_told_and_its_log_stays(checkout: Path) -> None:
    top = checkout.parent
    executable(top / "bin" / "python3.98", f"{ANSWERS}echo 1 failed\nexit 3")
    executable(top / "bin" / "python3.99", f"{ANSWERS}echo 1 passed")
    status, (failed, passed) = run(checkout, "3.98", "3.99")
    (log,) = (top / "tmp").glob("*/*")
    assert failed == f"3.98  failed, status 3, see {log}  TIME  1 failed"
    assert passed == "3.99  passed  TIME  1 passed"
    assert status == 1
    assert log.read_text().endswith("1 failed\n")


def test_none_is_no_success(checkout: Path) -> None:
    assert run(checkout, "3.97") == (1, ["3.97  not found, neither on the PATH nor by pyenv"])
