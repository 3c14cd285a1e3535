"""The age of the pages' figures: the later commits that have changed the product.

    python -m tests.figures

A figure has its date and its commit, as in "23 November 2026, bbb3eed", or as in "ended 2026-11-25
17:43 UTC, commit bc3d869" if it is rendered from a recorded result. For each figure a line names
the page, the commit, and the number of later commits that changed the product. A shallow clone has
no history to count; the line then says this.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.pages import PAGES, TOP

PRODUCT = ("coordinator", "pipeline", "schemas", "conf")
_FIGURE = re.compile(
    r"\b(?:\d{1,2} [A-Z][a-z]+ \d{4}, |[0-9-]{10} [0-9:]{5} UTC, commit )([0-9a-f]{7,})\b"
)


class Figure(NamedTuple):
    """The position of a figure, `line` from 1, and the commit that it was measured at."""

    page: Path
    line: int
    commit: str


def figures(pages: Sequence[Path] = PAGES) -> Iterator[Figure]:
    """Yield the dated figures of the pages, in their order."""
    for page in pages:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            for commit in _FIGURE.findall(line):
                yield Figure(page, number, commit)


@cache
def changes_since(commit: str, repository: Path = TOP) -> int:
    """Return how many commits after this one have changed the product.

    Raises LookupError for a commit that the repository's history does not have.
    """
    if _git(repository, "rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        raise LookupError("this clone is shallow; `git fetch --unshallow` brings the history")
    # A commit of another branch is known in this clone only.
    if _git(repository, "merge-base", "--is-ancestor", commit, "HEAD").returncode:
        raise LookupError(f"{commit}: the history of HEAD does not have it")
    return int(_git(repository, "rev-list", "--count", f"{commit}..HEAD", "--", *PRODUCT).stdout)


def age(commit: str, repository: Path = TOP) -> str:
    """Return in words how old a figure of this commit is, or why that is unknown."""
    try:
        changes = changes_since(commit, repository)
    except LookupError as error:
        return f"age unknown: {error.args[0]}"
    return f"{changes} later commits changed the product" if changes else "of this product"


def _git(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *words], cwd=repository, capture_output=True, text=True, check=False
    )


def main() -> None:
    """Print each figure of the pages with its age in commits."""
    # `head` and other readers of only the first lines end the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for figure in figures():
        place = f"{figure.page.relative_to(TOP)}:{figure.line}"
        print(f"{place}: {figure.commit}: {age(figure.commit)}")


if __name__ == "__main__":
    main()
