"""The house rules: formatted, linted, typed, and imports that point one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ends import check_end

TOP = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "ruff", "check", "--no-cache", "."],
        ["-m", "ruff", "format", "--no-cache", "--check", "."],
        ["-m", "mypy"],
        ["-m", "vulture"],
        ["-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"],
    ],
    ids=["ruff check", "ruff format", "mypy", "vulture", "import-linter"],
)
def test_the_house_is_in_order(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command], cwd=TOP, capture_output=True, text=True, timeout=240
    )
    check_end(done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize("long", [False, True])
def test_examples_are_the_same_ones_but_under_long(long: bool) -> None:
    script = "\n".join(
        [
            "from hypothesis import settings",
            "from tests.examples import load_profile",
            f"load_profile({long})",
            "print(settings.default.deadline, settings.default.derandomize)",
        ]
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    # How long an example takes decides no test.
    assert done.stdout.split() == ["None", str(not long)]
