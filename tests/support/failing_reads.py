"""Reads that fail: who is told of each file that is opened, or folder that is listed, may raise.

What Python opens is seen by an audit hook. What is opened in C++ and in Rust is seen where it is
asked for: files of Arrow's file systems one by one, and each reading of a table by delta-rs.

In a store a read is a request that has no good answer for as long as this project repeats it, but
for one whose answer breaks off: that is repeated. A local folder stands for the store.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import deltalake
import obstore
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from obstore.exceptions import GenericError

from group_coordinator.pipeline.delta import commit_reader, object_store, store_files
from group_coordinator.pipeline.delta.bucket import StoreError, StoreRefusal
from group_coordinator.pipeline.delta.disk import Disk
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store import Costs
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


class Reads(Protocol):
    """Who is told of reads."""

    def read(self, path: object, file: Path | None = None) -> float | None:
        """Take note of a read; returns the share of the content that it has, None for all of it.

        Raises OSError if it is to fail. What cannot be shortened fails if it is to be short; `file`
        may be shortened by whoever is told.
        """
        ...


_now: Reads | None = None
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

    def read(self, path: object, file: Path | None = None) -> float | None:
        """Note a read; raises OSError if it is to fail. `file` may be SHORT in place of that."""
        if self._is_unseen or not str(path).startswith(self._root):
            return None
        self.restore()
        self.count += 1
        if self.count != self._fails:
            return None
        if self._kind != SHORT:
            raise error_of(self._kind, path)
        if file is None or file.is_dir():
            raise error_of(BROKEN, path)
        self._shorten(file)
        return None

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
            # A commit ends within its last action: delta-rs does not notice a cut at a line's end.
            start = content.rstrip().rfind(b"\n") + 1 if file.suffix == ".json" else 0
            file.write_bytes(content[: (start + len(content)) // 2])
            self._cut = aside, file

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        self._is_unseen = True
        try:
            yield
        finally:
            self._is_unseen = False


_READS = ("read", "read_first", "read_range", "look_up", "stamp", "list", "download")


def count_reads(patch: pytest.MonkeyPatch, kind: int) -> None:
    """Have reads counted from now on, as many as there can be: in a store if the kind is of one.

    A look also asks whether the log was cleaned up, which is otherwise asked now and then.
    """
    patch.setattr(commit_reader, "GONE_CHECK_S", 0.0)
    patch.setattr(commit_reader, "CLEANED_S", 0.0)
    patch.setattr(ObjectStore, "costs", Costs(is_remote=True, freed_s=0.0))
    if kind in STORE_KINDS:
        _count_requests(patch)
    else:
        count_files(patch)


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
        patch.setattr(ObjectStore, name, _counted(getattr(ObjectStore, name)))


def _counted(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A way of asking a store, of which each use is a read."""

    def asking(folder: ObjectStore, path: object = "", *rest: Any, **named: Any) -> Any:
        reads = _now
        if not isinstance(reads, FailingReads) or not reads.breaks_off(f"{folder.uri}/{path}"):
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

    def __init__(self, files: Any, uri: str, reads: Reads) -> None:
        self._files, self._uri, self._reads = files, uri, reads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in ("open_input_file", "open_input_stream"):
            return found

        def opened(path: str) -> Any:
            file = Path(self._uri, path)
            share = self._reads.read(file, file)
            with found(path) as whole:
                # It is read at once: the file may have the rest of its content by then.
                content = whole.read()
            if share is None:
                return pa.BufferReader(content)
            return pa.PythonFile(_Short(content, share), mode="r")

        return opened


class _Short(io.BytesIO):
    """A file as long as its content, of which reading brings no more than a share."""

    def __init__(self, content: bytes, share: float) -> None:
        super().__init__(content)
        self._end = int(share * len(content))

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._end - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def failing_reads(root: str, fails: int, kind: int) -> Iterator[FailingReads]:
    """Have one read fail of those in the block."""
    reads = FailingReads(root, fails, kind)
    try:
        with telling_of_reads(reads):
            yield reads
    finally:
        reads.restore()


@contextmanager
def telling_of_reads(reads: Reads) -> Iterator[None]:
    """Tell of each read in the block."""
    global _now, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_heard)
        _is_hooked = True

    # It does not hold who is told: a table may be kept for longer, by what only they let go of.
    class Table(deltalake.DeltaTable):
        def __init__(self, table_uri: Any, *rest: Any, **options: Any) -> None:
            _read_table(table_uri, "_delta_log", "*.json")
            super().__init__(table_uri, *rest, **options)

        def update_incremental(self) -> None:
            _read_table(self.table_uri, "_delta_log", "*.json")
            super().update_incremental()

        def to_pyarrow_dataset(self, *rest: Any, **options: Any) -> Any:
            _read_table(self.table_uri, ".", "*.parquet")
            return super().to_pyarrow_dataset(*rest, **options)

    before, _now = _now, reads
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deltalake, "DeltaTable", Table)
            yield
    finally:
        _now = before


def _read_table(uri: object, folder: str, pattern: str) -> None:
    """Tell of a reading of a table by delta-rs, whose newest file may be shortened."""
    reads = _now
    if reads is None:
        return
    # An open table has a URL, also of a local folder.
    path, file = local_folder(str(uri)) or Path(str(uri)), None
    if isinstance(reads, FailingReads):
        file = reads.newest(path / folder, pattern)
    if reads.read(path, file) is not None:
        raise DeltaError(f"a file of {uri} ends too early")


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    # Python opens a file of Arrow's without this event.
    if _now is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, os.PathLike)) and _reads_only(mode, flags):
            # What is opened as `flush` does is not read.
            _heard_of(_now, path, None if mode is None else Path(path))
    elif event in ("os.listdir", "os.scandir"):
        _heard_of(_now, arguments[0], None)


def _heard_of(reads: Reads, path: object, file: Path | None) -> None:
    if reads.read(path, file) is not None:
        raise error_of(BROKEN, path)


def _reads_only(mode: str | None, flags: int) -> bool:
    return mode in ("r", "rb") if mode is not None else not flags & (os.O_WRONLY | os.O_RDWR)


def count_files(patch: pytest.MonkeyPatch) -> None:
    """Have the file systems that readers open from now on count the files that they open.

    A dataset's files are opened in Arrow: it counts where it is asked for (`telling_of_reads`).
    """
    original: Callable[[str], Any] = store_files.open_files

    def open_files(uri: str) -> Any:
        return _Files(original(uri), uri, _Current())

    for name, module in list(sys.modules.items()):
        if (
            name.startswith("group_coordinator.")
            and not name.endswith(".data_file")
            and getattr(module, "open_files", None) is original
        ):
            patch.setattr(module, "open_files", open_files)
    stamp = Disk.stamp

    def stamp_of_whole(self: Disk, path: str) -> object | None:
        # A short read leaves the file as it is: its size and time are those of the whole file.
        _Current().restore()
        return stamp(self, path)

    patch.setattr(Disk, "stamp", stamp_of_whole)


class _Current:
    """The reads that are counted at present, if any are."""

    def read(self, path: object, file: Path | None = None) -> float | None:
        return None if _now is None else _now.read(path, file)

    def restore(self) -> None:
        if isinstance(_now, FailingReads):
            _now.restore()
