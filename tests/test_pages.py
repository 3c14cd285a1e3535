"""Each page's links lead to files and headings, its blocks are run, and the first page is short."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from group_coordinator.pipeline.settings import SettingsError
from tests.pages import PAGES, TOP, blocks, broken_links, read

MOST_BYTES = 8_192


def name_of(page: Path) -> str:
    return str(page.relative_to(TOP))


def languages(page: Path) -> set[str]:
    return {block.language for block in blocks(page.read_text("utf-8")) if block.is_run}


# The pages with programs that run in the default tier: those for the first hour of a new user.
FIRST_PAGES = ("README.md", "pipeline/gateway/README.md", "pipeline/client/README.md")


def with_markers(page: Path) -> object:
    """Return the page as a parameter; programs start members and servers, so they are slow."""
    tier = pytest.mark.slow if name_of(page) in FIRST_PAGES else pytest.mark.full
    marks = [tier] if languages(page) - {"toml"} else []
    return pytest.param(page, id=name_of(page), marks=marks)


RUN = [page for page in PAGES if languages(page)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_a_link_to_nowhere_is_found() -> None:
    text = (
        "# A `title`, b\n[a](#a-title-b) [b](#a) [c](README.md) "
        "[d](no.md) [e](tests/README.md#no)\n"
    )
    assert broken_links(TOP / "README.md", text) == ["#a", "no.md", "tests/README.md#no"]


def test_the_front_page_is_short() -> None:
    assert len((TOP / "README.md").read_bytes()) <= MOST_BYTES


PRINTS = "```python\nprint(1 + 1)\n```\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PRINTS + "\n```\n2\n```\n", None),
        (PRINTS + "\n```\n3\n```\n", AssertionError),
        (PRINTS + "<!-- not run: -->\n```\n3\n```\n", AssertionError),
        (PRINTS + "<!-- not run: long -->\n```\n3\n```\n", None),
        ("```sh\ntrue\n```\n", None),
        ("```sh\nfalse | true\nfalse\ntrue\n```\n", AssertionError),
        ("```toml\n[coordinator]\nlease.ms = 9000\n```\n", None),
        ("```toml\n[coordinator]\nlease.mss = 9000\n```\n", SettingsError),
        ("```rust\n```\n", AssertionError),
    ],
)
def test_a_block_is_run_and_must_do_what_it_says(
    text: str, fault: type[Exception] | None, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with nullcontext() if fault is None else pytest.raises(fault):
        list(read(page, tmp_path))


@pytest.mark.parametrize("page", [with_markers(page) for page in RUN])
def test_every_block_runs_in_order_from_nothing(page: Path, tmp_path: Path) -> None:
    for block in read(page, tmp_path):
        print(f"{page.name}:{block.line}")


@pytest.mark.spark
@pytest.mark.long
def test_the_front_page_s_blocks_run_beside_a_coordinator_on_spark(tmp_path: Path) -> None:
    for block in read(TOP / "README.md", tmp_path, spark=True):
        print(f"README.md:{block.line}")
