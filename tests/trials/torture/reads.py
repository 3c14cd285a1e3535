"""Reads that fail in the processes of all coordinators; what fails them is in the folder `hook`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.trials.torture.hook.sitecustomize import FAILED, VARIABLE

_HOOK = Path(__file__).parent / "hook"


class FailingReads:
    """What the hook is told; `file` is where it looks."""

    def __init__(self, file: Path, root: str) -> None:
        self._file = file
        self._root = root

    def begin(self, share: float) -> None:
        """Have this share of all reads below the root fail from now on."""
        partial = self._file.with_suffix(".tmp")
        partial.write_text(f"{self._root}/\n{share}")
        partial.rename(self._file)

    def end(self) -> None:
        """Have no read fail any more."""
        self._file.unlink(missing_ok=True)

    def counts(self) -> dict[str, int]:
        """How many reads failed so far, by kind."""
        failed = Path(f"{self._file}{FAILED}")
        return dict(Counter(failed.read_text().splitlines())) if failed.exists() else {}


@contextmanager
def hooked(file: Path, root: str) -> Iterator[FailingReads]:
    """Have what is started in the block install the hook, which looks into a file."""
    before = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
    os.environ[VARIABLE] = str(file)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_HOOK), before["PYTHONPATH"]]))
    try:
        yield FailingReads(file, root)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
