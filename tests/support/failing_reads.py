"""Reads that fail once: the k-th file that is opened, or folder that is listed, under a root.

What Python opens is seen by an audit hook. What is opened in C++ and in Rust is counted where it is
asked for: files of Arrow's file systems one by one, and each reading of a table by delta-rs.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from group_coordinator.pipeline.delta import commit_reader

TOO_MANY_FILES = errno.EMFILE
BROKEN = errno.EIO
AWAY = errno.ENOENT
# Not an error: the reader is given the first half of the file. A folder is BROKEN then.
SHORT = 0
KINDS = (TOO_MANY_FILES, BROKEN, AWAY, SHORT)

_now: FailingReads | None = None
_is_hooked = False


def name_of(kind: int) -> str:
    """The name of a kind, for a test's."""
    return errno.errorcode.get(kind, "short")


class FailingReads:
    """Counts reads under `root`; the one with the number `fails`, from 1 on, raises `kind`.

    Reads that write a file do not count. A file that is SHORT is so until the next read.
    """

    def __init__(self, root: str, fails: int, kind: int) -> None:
        self._root = root
        self._fails = fails
        self._kind = kind
        self._is_unseen = False
        self._cut: tuple[Path, Path] | None = None
        self.count = 0

    @property
    def has_failed(self) -> bool:
        """Whether there were so many reads."""
        return self.count >= self._fails

    def read(self, path: object, file: Path | None = None) -> None:
        """Note a read; raises OSError if it is to fail. `file` may be SHORT in place of that."""
        if self._is_unseen or not str(path).startswith(self._root):
            return
        self.restore()
        self.count += 1
        if self.count != self._fails:
            return
        if self._kind != SHORT:
            raise OSError(self._kind, os.strerror(self._kind), str(path))
        if file is None:
            raise OSError(BROKEN, os.strerror(BROKEN), str(path))
        self._shorten(file)

    def newest(self, folder: Path, pattern: str) -> Path | None:
        """The file that came last into a folder; finding it is no read."""
        with self._unseen():
            return max(folder.glob(pattern), default=None, key=os.path.getmtime)

    def restore(self) -> None:
        """Give a file that was SHORT the rest of its content."""
        if self._cut is not None:
            (aside, file), self._cut = self._cut, None
            with self._unseen():
                os.replace(aside, file)

    def _shorten(self, file: Path) -> None:
        with self._unseen(), suppress(FileNotFoundError):
            aside = Path(tempfile.mkdtemp(dir=Path(self._root).parent), "whole")
            os.rename(file, aside)
            content = aside.read_bytes()
            file.write_bytes(content[: len(content) // 2])
            self._cut = aside, file

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        self._is_unseen = True
        try:
            yield
        finally:
            self._is_unseen = False


class _Files:
    """An Arrow file system of which each opened file is a read."""

    def __init__(self, files: Any, uri: str, reads: FailingReads) -> None:
        self._files, self._uri, self._reads = files, uri, reads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in ("open_input_file", "open_input_stream"):
            return found

        def opened(path: str) -> Any:
            file = Path(self._uri, path)
            self._reads.read(file, file)
            with found(path) as whole:
                # It is read at once: the file may have the rest of its content by then.
                return pa.BufferReader(whole.read())

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
            reads.read(uri, reads.newest(Path(uri, "_delta_log"), "*.json"))
            super().__init__(uri, *rest, **options)

        def update_incremental(self) -> None:
            reads.read(self.table_uri, reads.newest(Path(self.table_uri, "_delta_log"), "*.json"))
            super().update_incremental()

        def to_pyarrow_table(self, *rest: Any, **options: Any) -> Any:
            reads.read(self.table_uri, reads.newest(Path(self.table_uri), "*.parquet"))
            return super().to_pyarrow_table(*rest, **options)

    _now = reads
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deltalake, "DeltaTable", Table)
            yield reads
    finally:
        _now = None
        reads.restore()


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    # Python opens a file of Arrow's without this event.
    if _now is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, os.PathLike)) and _reads_only(mode, flags):
            _now.read(path, Path(path))
    elif event in ("os.listdir", "os.scandir"):
        _now.read(arguments[0])


def _reads_only(mode: str | None, flags: int) -> bool:
    return mode in ("r", "rb") if mode is not None else not flags & (os.O_WRONLY | os.O_RDWR)


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

    def read(self, path: object, file: Path | None = None) -> None:
        if _now is not None:
            _now.read(path, file)
