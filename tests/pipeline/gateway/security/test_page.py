"""What the page on security promises is shown by tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[4]
PAGE = TOP / "pipeline" / "gateway" / "SECURITY.md"
TESTS = re.compile(r"^(?:async )?def (test_\w+)\(", re.M)


def rows() -> list[list[str]]:
    """The cells of each row of the page's tables, without those above and below the line."""
    lines = PAGE.read_text("utf-8").splitlines()
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    return [each for each in found if each[-1] != "shown by" and set(each[-1]) != {"-"}]


def test_each_line_names_tests_that_there_are() -> None:
    tests = {
        name
        for path in (TOP / "tests").rglob("test_*.py")
        for name in TESTS.findall(path.read_text("utf-8"))
    }
    promises = rows()
    assert len(promises) > 20
    for _, can, cannot, shown_by in promises:
        assert can or cannot
        named = re.findall(r"`(\w+)`", shown_by)
        assert named, f"nothing shows: {can} {cannot}"
        assert set(named) <= tests, set(named) - tests


def test_it_is_found_from_where_users_look() -> None:
    for place in ("README.md", "pipeline/gateway/CLIENTS.md", ".github/SECURITY.md"):
        (link,) = set(
            re.findall(
                r"\((\S*gateway/SECURITY\.md|SECURITY\.md)\)", (TOP / place).read_text("utf-8")
            )
        )
        assert ((TOP / place).parent / link).resolve() == PAGE
