"""A mutant: one place of the product that is written wrong on purpose, and the tests that find it.

The table of them is `table/*.toml`, a file for each part of the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

TABLE = Path(__file__).parent / "table"


class Mutant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place of the product and the text that replaces it.

    `promise` describes the behaviour that the mutant breaks. `file` is a path in the checkout. It
    contains the original text exactly once, which `becomes` replaces. `tests` are pytest's node
    ids; at least one of them must fail.

    `equivalent` explains why no test can detect the mutant; its tests must then pass. With `hangs`,
    a test never ends on the mutant, so the timeout of the tests detects it.
    """

    promise: str
    file: str
    stands: str
    becomes: str
    tests: tuple[str, ...]
    equivalent: str = ""
    hangs: bool = False

    def faults(self, top: Path) -> Iterator[str]:
        """Yield the reasons why the mutant no longer applies to a checkout."""
        text = (top / self.file).read_text("utf-8") if (top / self.file).is_file() else ""
        times = text.count(self.stands)
        if times != 1:
            yield f"{self.promise}: {self.file} has {times} times what it is to have once"
        elif self.becomes == self.stands:
            yield f"{self.promise}: nothing is changed"
        elif self.file.endswith(".py"):
            try:
                compile(self.changed(text), self.file, "exec", dont_inherit=True)
            except SyntaxError as error:
                yield f"{self.promise}: {self.file} does not compile: {error}"
        if not self.tests:
            yield f"{self.promise}: it names no test"
        for test in self.tests:
            file, _, name = test.partition("::")
            tests = (top / file).read_text("utf-8") if (top / file).is_file() else ""
            name = name.partition("[")[0].rpartition("::")[2]
            if f"def {name}" not in tests:
                yield f"{self.promise}: there is no {test}"

    def changed(self, text: str) -> str:
        """Return the text of the file with the mutant applied."""
        return text.replace(self.stands, self.becomes)


class _Part(Struct, forbid_unknown_fields=True):
    """A file of the table."""

    mutants: tuple[Mutant, ...]


def read_table(table: Path = TABLE) -> list[Mutant]:
    """Read all mutants. Raises msgspec.ValidationError for a field that no mutant has."""
    parts = sorted(table.glob("*.toml"))
    return [
        mutant
        for part in parts
        for mutant in msgspec.toml.decode(part.read_bytes(), type=_Part).mutants
    ]
