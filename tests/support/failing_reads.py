"""Reads that fail once: the k-th file that is opened, or folder that is listed, under a root.

What Python opens is seen by an audit hook. What is opened in C++ and in Rust is counted where it is
asked for: files of Arrow's file systems one by one, and each reading of a table by delta-rs.

In a store a read is a request that has no good answer for as long as this project repeats it, but
for one whose answer breaks off: that is repeated. A local folder stands for the store.
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
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import GenericError

from group_coordinator.pipeline.delta import commit_reader, object_store, store_log
from group_coordinator.pipeline.delta.object_store import Folder
from group_coordinator.pipeline.delta.store_errors import StoreError, StoreRefusal
from group_coordinator.pipeline.delta.table import local_folder

TOO_MANY_FILES = errno.EMFILE
BROKEN = errno.EIO
AWAY = errno.ENOENT
# Not an error: the reader is given the first half of the file. A folder is BROKEN then.
SHORT = 0
KINDS = (TOO_MANY_FILES, BROKEN, AWAY, SHORT)
# In a store: an answer that asks to slow down, none, a refusal, and one that breaks off.
SLOW_DOWN, SILENT, REFUSED, BROKEN_OFF = -1, -2, -3, -4
STORE_KINDS = (SLOW_DOWN, SILENT, REFUSED, BROKEN_OFF)
_STORE_NAMES = {SLOW_DOWN: "503", SILENT: "silent", REFUSED: "403", BROKEN_OFF: "broken off"}

_now: FailingReads | None = None
_is_hooked = False


def name_of(kind: int) -> str:
    """The name of a kind, for a test's."""
    return _STORE_NAMES.get(kind) or errno.errorcode.get(kind, "short")


def error_of(kind: int, path: object) -> OSError:
    """The error that a kind of failing read is."""
    if kind == SLOW_DOWN:
        return StoreError(f"GET {path}: 503 Service Unavailable, SlowDown", "503")
    if kind in (SILENT, BROKEN_OFF):
        return StoreError(f"GET {path}: no answer")
    if kind == REFUSED:
        return StoreRefusal(f"GET {path}: 403 Forbidden, ExpiredToken")
    return OSError(kind, os.strerror(kind), str(path))


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
            raise error_of(self._kind, path)
        if file is None or file.is_dir():
            raise error_of(BROKEN, path)
        self._shorten(file)

    def breaks_off(self, path: object) -> bool:
        """Note a request; whether its answer breaks off. Raises OSError if it fails otherwise."""
        if self._kind == BROKEN_OFF and str(path).startswith(self._root):
            self.count += 1
            return self.count == self._fails
        self.read(path)
        return False

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


_READS = ("read", "read_first", "read_range", "look_up", "list", "download")


def count_reads(patch: pytest.MonkeyPatch, kind: int) -> None:
    """Have reads counted from now on, as many as there can be: in a store if the kind is of one.

    A look also asks whether the log was cleaned up, which is otherwise asked now and then.
    """
    patch.setattr(commit_reader, "GONE_CHECK_S", 0.0)
    patch.setattr(commit_reader, "CLEANED_S", 0.0)
    patch.setattr(store_log, "CLEANED_S", 0.0)
    if kind in STORE_KINDS:
        _count_requests(patch)
    else:
        _count_files(patch)


def _count_requests(patch: pytest.MonkeyPatch) -> None:
    """Have all tables read and written as in a store, and count the requests that read."""
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("group_coordinator.")
            and getattr(module, "local_folder", None) is local_folder
        ):
            patch.setattr(module, "local_folder", lambda _uri: None)
    patch.setattr(object_store, "_PAUSE_S", 0.0)
    for name in _READS:
        patch.setattr(Folder, name, _counted(getattr(Folder, name)))


def _counted(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A way of asking a store, of which each use is a read."""

    def asking(folder: Folder, path: object = "", *rest: Any, **named: Any) -> Any:
        if _now is None or not _now.breaks_off(f"{folder.uri}/{path}"):
            return ask(folder, path, *rest, **named)
        with pytest.MonkeyPatch.context() as patch:
            # The next attempt is answered.
            patch.setattr(object_store, "obstore", _BreaksOff())
            return ask(folder, path, *rest, **named)

    return asking


class _BreaksOff:
    """The store's client, of which the first request has an answer that breaks off."""

    def __init__(self) -> None:
        self._is_first = True

    def __getattr__(self, name: str) -> Any:
        if self._is_first and name != "exceptions":
            self._is_first = False
            raise GenericError("Generic S3 error: HTTP error: error reading a body")
        return getattr(obstore, name)


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
            # What is opened as `flush` does is not read.
            _now.read(path, None if mode is None else Path(path))
    elif event in ("os.listdir", "os.scandir"):
        _now.read(arguments[0])


def _reads_only(mode: str | None, flags: int) -> bool:
    return mode in ("r", "rb") if mode is not None else not flags & (os.O_WRONLY | os.O_RDWR)


def _count_files(patch: pytest.MonkeyPatch) -> None:
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
