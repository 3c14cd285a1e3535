"""Failing reads in the processes of all coordinators; the folder `hook` has the implementation."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.trials.torture.hook.sitecustomize import FAILED, VARIABLE

_HOOK = Path(__file__).parent / "hook"


class FailingReads:
    """The instructions to the hook; `file` is the file that it reads."""

    def __init__(self, file: Path, root: str) -> None:
        self._file = file
        self._root = root

    def begin(self, share: float) -> None:
        """Make `share` of all reads below the root fail from now on."""
        partial = self._file.with_suffix(".tmp")
        partial.write_text(f"{self._root}/\n{share}")
        partial.rename(self._file)

    def end(self) -> None:
        """Let all reads succeed again."""
        self._file.unlink(missing_ok=True)

    def counts(self) -> dict[str, int]:
        """Return the number of failed reads so far, by kind."""
        failed = Path(f"{self._file}{FAILED}")
        return dict(Counter(failed.read_text().splitlines())) if failed.exists() else {}


@contextmanager
def hooked(file: Path, root: str) -> Iterator[FailingReads]:
    """Install the hook, controlled by `file`, in processes started in the block."""
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
