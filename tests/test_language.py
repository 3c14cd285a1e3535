"""Language of the finished packages: docstrings, comments and pages avoid the dialect words."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parent.parent
# Folders of counted files, without their subfolders. A package joins the list when it is rewritten,
# and stays.
FINISHED = (
    ".",
    ".github",
    "conf",
    "conf/deploy",
    "conf/examples",
    "coordinator",
    "coordinator/consumer",
    "coordinator/group",
    "coordinator/producer",
    "pipeline",
    "pipeline/admin",
    "pipeline/cli",
    "pipeline/client",
    "pipeline/delta",
    "pipeline/gateway",
    "pipeline/gateway/apis",
    "pipeline/monitor",
    "pipeline/node",
    "pipeline/ownership",
    "pipeline/records",
    "pipeline/replay",
    "pipeline/session",
    "pipeline/spark",
    "pipeline/stream",
    "pipeline/tables",
    "pipeline/topics",
    "pipeline/ui",
    "pipeline/upkeep",
    "schemas",
    "schemas/kafka",
    "tests",
    "tests/bench",
    "tests/coordinator",
    "tests/coordinator/consumer",
    "tests/coordinator/producer",
    "tests/end_to_end",
    "tests/golden",
    "tests/object_store",
    "tests/pictures",
    "tests/pipeline",
    "tests/pipeline/admin",
    "tests/pipeline/cli",
    "tests/pipeline/monitor",
    "tests/pipeline/records",
    "tests/pipeline/replay",
    "tests/pipeline/ui",
    "tests/properties",
    "tests/schemas",
    "tests/sharing",
    "tests/support",
    "tests/trials/broker",
    "tests/trials/gateways",
    "tests/trials/malformed",
    "tests/trials/mutants",
    "tests/trials/simulation",
    "tests/trials/torture",
    "tests/trials/torture/hook",
)
MOST_PER_10_000 = 10
# Words and phrases that stand for an unnamed subject, or for a term of the field.
DIALECT = (
    "whoever, whose, nobody, somebody, anybody, everybody, anew, of which, by which, from which,"
    "so does, so is, so has, told, by then, by now, behind, beside, what is, what was, what has,"
    "of its own, none of, goes on, go on, gone on, stands, stood, who"
)
_PATTERN = re.compile(
    rf"\b({'|'.join(re.escape(word.strip()) for word in DIALECT.split(','))})\b", re.IGNORECASE
)
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)


class Passage(NamedTuple):
    """A docstring, a comment or a line of a page. `kind` names which."""

    kind: str
    line: int
    text: str


def python_passages(source: str) -> Iterator[Passage]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield Passage("docstring", getattr(node, "lineno", 1), text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage("comment", token.start[0], token.string)


def page_passages(text: str) -> Iterator[Passage]:
    prose = _CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for number, line in enumerate(prose.splitlines(), 1):
        yield Passage("page", number, line)


def faults_of(files: dict[str, str], most: int = MOST_PER_10_000) -> list[str]:
    """Return the passages with dialect words, for each kind that has more of them than `most`."""
    words: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    for name, text in files.items():
        read = python_passages if name.endswith(".py") else page_passages
        for kind, line, passage in read(text):
            words[kind] = words.get(kind, 0) + len(re.findall(r"\w+", passage))
            for match in _PATTERN.finditer(passage):
                found.setdefault(kind, []).append(f"{name}:{line}: {kind} has {match[0]!r}")
    return [
        fault
        for kind, faults in found.items()
        if 10_000 * len(faults) > most * words[kind]
        for fault in faults
    ]


def test_each_module_that_the_glossary_names_exists() -> None:
    page = (TOP / "coordinator/GLOSSARY.md").read_text("utf-8")
    paths = re.findall(r"\| `([^`]+)` \|$", page, re.MULTILINE)
    assert len(paths) >= 30
    assert [path for path in paths if not (TOP / path).exists()] == []


@pytest.mark.parametrize("package", FINISHED)
def test_finished_package_has_at_most_10_dialect_words_per_10_000(package: str) -> None:
    paths = [path for path in (TOP / package).iterdir() if path.suffix in (".py", ".md")]
    assert paths
    assert faults_of({str(path.relative_to(TOP)): path.read_text("utf-8") for path in paths}) == []


def test_dialect_words_of_docstrings_comments_and_pages_are_named_by_line() -> None:
    module = '"""A module."""\n\ndef f():\n    """Ask Whoever goes on."""\n    # Nobody is told.\n'
    page = "# Title\n```sh\necho who\n```\nIt stands.\n"
    assert faults_of({"a.py": module, "b.md": page}) == [
        "a.py:3: docstring has 'Whoever'",
        "a.py:3: docstring has 'goes on'",
        "a.py:5: comment has 'Nobody'",
        "a.py:5: comment has 'told'",
        "b.md:5: page has 'stands'",
    ]


def test_parts_of_words_and_strings_that_are_no_docstrings_are_not_counted() -> None:
    assert faults_of({"a.py": '"""Understand the whole."""\nname = "nobody"\n'}) == []


def test_ten_dialect_words_in_10_000_pass_and_eleven_fail() -> None:
    def page(count: int) -> dict[str, str]:
        return {"a.md": "who " * count + "word " * (10_000 - count)}

    assert faults_of(page(10)) == []
    assert len(faults_of(page(11))) == 11
