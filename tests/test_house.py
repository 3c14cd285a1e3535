"""House rules without a linter: class names are unique, examples are repeatable."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
PRODUCT = ("coordinator", "pipeline", "schemas")


def shared_names(modules: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names that several public classes share, with the modules of each."""
    found = defaultdict(list)
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    return {name: sorted(where) for name, where in found.items() if len(where) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    modules = [path for room in PRODUCT for path in (TOP / room).rglob("*.py")]
    assert len(modules) > 300
    assert shared_names(modules) == {}


def test_a_name_that_two_public_classes_share_is_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("class Commit: ...\nclass _Run: ...\nclass Record: ...\n")
    other.write_text("def make():\n    class Commit: ...\nclass _Run: ...\n")
    assert shared_names([one, other]) == {"Commit": ["one.py", "other.py"]}


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
    # No example has a deadline.
    assert done.stdout.split() == ["None", str(not long)]
