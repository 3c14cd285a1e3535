"""Reads that fail once: the k-th file that is opened, or folder that is listed, under a root.

What Python opens is seen by an audit hook. What is opened in C++ and in Rust is counted where it is
asked for: files of Arrow's file systems one by one, and each reading of a table by delta-rs.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import deltalake
import pytest

from group_coordinator.pipeline.delta import commit_reader

TOO_MANY_FILES = errno.EMFILE
BROKEN = errno.EIO
AWAY = errno.ENOENT
KINDS = (TOO_MANY_FILES, BROKEN, AWAY)

_now: FailingReads | None = None
_is_hooked = False


class FailingReads:
    """Counts reads under `root`; the one with the number `fails`, from 1 on, raises `kind`."""

    def __init__(self, root: str, fails: int, kind: int) -> None:
        self._root = root
        self._fails = fails
        self._kind = kind
        self.count = 0

    @property
    def has_failed(self) -> bool:
        """Whether there were so many reads."""
        return self.count >= self._fails

    def read(self, path: object) -> None:
        """Note a read; raises OSError if it is to fail."""
        if not str(path).startswith(self._root):
            return
        self.count += 1
        if self.count == self._fails:
            raise OSError(self._kind, os.strerror(self._kind), str(path))


class _Files:
    """An Arrow file system of which each opened file is a read."""

    def __init__(self, files: Any, uri: str, reads: FailingReads) -> None:
        self._files, self._uri, self._reads = files, uri, reads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in ("open_input_file", "open_input_stream"):
            return found

        def opened(path: str) -> Any:
            self._reads.read(f"{self._uri}/{path}")
            return found(path)

        return opened


@contextmanager
def failing_reads(root: str, fails: int, kind: int) -> Iterator[FailingReads]:
    """Have one read fail of those in the block."""
    global _now, _is_hooked
    reads = FailingReads(root, fails, kind)
    if not _is_hooked:
        sys.addaudithook(_heard)
        _is_hooked = True

    class Table(deltalake.DeltaTable):
        def __init__(self, uri: Any, *rest: Any, **options: Any) -> None:
            reads.read(uri)
            super().__init__(uri, *rest, **options)

        def update_incremental(self) -> None:
            reads.read(self.table_uri)
            super().update_incremental()

        def to_pyarrow_table(self, *rest: Any, **options: Any) -> Any:
            reads.read(self.table_uri)
            return super().to_pyarrow_table(*rest, **options)

    _now = reads
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deltalake, "DeltaTable", Table)
            yield reads
    finally:
        _now = None


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    # Python opens a file of Arrow's without this event.
    if _now is not None and event in ("open", "os.listdir", "os.scandir"):
        _now.read(arguments[0])


def counted_files(patch: pytest.MonkeyPatch) -> None:
    """Have the file systems that readers open from now on count the files that they open."""
    original: Callable[[str], Any] = commit_reader.open_files

    def open_files(uri: str) -> Any:
        return _Files(original(uri), uri, _Current())  # type: ignore[arg-type]

    for name, module in list(sys.modules.items()):
        if (
            name.startswith("group_coordinator.")
            and getattr(module, "open_files", None) is original
        ):
            patch.setattr(module, "open_files", open_files)


class _Current:
    """The reads that are counted at present, if any are."""

    def read(self, path: object) -> None:
        if _now is not None:
            _now.read(path)
