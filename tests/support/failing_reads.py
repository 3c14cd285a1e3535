"""Failing reads: a listener is called for each opened file and listed folder, and may raise.

An audit hook sees what Python opens. Reads in C++ and Rust are counted at their calls: each file of
Arrow's file systems, and each read of a table by delta-rs.

In a store a failing read is a request without a valid response for the whole time of its retries.
One kind breaks off, and is retried. A local folder represents the store.
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

from group_coordinator.pipeline.delta import identity, object_store, store_files
from group_coordinator.pipeline.delta.bucket import StoreError, StoreRefusal
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import Costs, Disk
from group_coordinator.pipeline.delta.table import local_folder

TOO_MANY_FILES = errno.EMFILE
BROKEN = errno.EIO
AWAY = errno.ENOENT
# Not an error: the reader gets the first half of the file. For a folder it is BROKEN.
SHORT = 0
KINDS = (TOO_MANY_FILES, BROKEN, AWAY, SHORT)
# In a store: a 503 response, none, a refusal, and a response that breaks off.
SLOW_DOWN, SILENT, REFUSED, BROKEN_OFF = -1, -2, -3, -4
STORE_KINDS = (SLOW_DOWN, SILENT, REFUSED, BROKEN_OFF)
_STORE_NAMES = {SLOW_DOWN: "503", SILENT: "silent", REFUSED: "403", BROKEN_OFF: "broken off"}


class Reads(Protocol):
    """A listener of reads."""

    def read(self, path: object, file: Path | None = None) -> float | None:
        """Note a read; return the share of its content that is delivered, None for all.

        Raises OSError if the read is to fail. A read that cannot be shortened fails instead. The
        listener may shorten `file`.
        """
        ...


_now: Reads | None = None
_is_hooked = False


def name_of(kind: int) -> str:
    """Return the name of a kind, for a test's id."""
    return _STORE_NAMES.get(kind) or errno.errorcode.get(kind, "short")


def error_of(kind: int, path: object) -> OSError:
    """Return the error of a kind of failing read."""
    if kind == SLOW_DOWN:
        return StoreError(f"GET {path}: 503 Service Unavailable, SlowDown", "503")
    if kind in (SILENT, BROKEN_OFF):
        return StoreError(f"GET {path}: no answer")
    if kind == REFUSED:
        return StoreRefusal(f"GET {path}: 403 Forbidden, ExpiredToken")
    return OSError(kind, os.strerror(kind), str(path))


class FailingReads:
    """A counter of reads under `root`; the read number `fails`, from 1 on, raises `kind`.

    Reads that write a file do not count. A SHORT file stays short until the next read.
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
        """Whether the number of reads reached `fails`."""
        return self.count >= self._fails

    def read(self, path: object, file: Path | None = None) -> float | None:
        """Note a read; raise OSError if it is to fail. `file` may become SHORT instead."""
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
        """Note a request; return whether its response breaks off. Raises OSError otherwise."""
        if self._kind == BROKEN_OFF and str(path).startswith(self._root):
            self.count += 1
            return self.count == self._fails
        self.read(path)
        return False

    def newest(self, folder: Path, pattern: str) -> Path | None:
        """Return the newest file in a folder; the search is no read."""
        with self._unseen():
            return max(folder.glob(pattern), default=None, key=os.path.getmtime)

    def restore(self) -> None:
        """Restore the content of a SHORT file."""
        if self._cut is not None:
            (aside, file), self._cut = self._cut, None
            with self._unseen():
                os.replace(aside, file)

    def _shorten(self, file: Path) -> None:
        with self._unseen(), suppress(FileNotFoundError):
            aside = Path(tempfile.mkdtemp(dir=Path(self._root).parent), "whole")
            os.rename(file, aside)
            content = aside.read_bytes()
            # A commit is cut within its last action, because delta-rs ignores a cut at a line's
            # end.
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
    """Count all reads from now on; those of a store, if the kind belongs to one.

    Each look also checks whether the log was cleaned up, which otherwise happens now and then.
    """
    patch.setattr(identity, "GONE_CHECK_S", 0.0)
    patch.setattr(identity, "CLEANED_S", 0.0)
    patch.setattr(ObjectStore, "costs", Costs(is_remote=True, freed_s=0.0))
    if kind in STORE_KINDS:
        _count_requests(patch)
    else:
        count_files(patch)


def _count_requests(patch: pytest.MonkeyPatch) -> None:
    """Let all tables be read and written as in a store, and count the read requests."""
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
    """Return a function that notes each call of a store's method as a read."""

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
    """A client of a store that breaks off the response of its first request."""

    def __init__(self) -> None:
        self._is_first = True

    def __getattr__(self, name: str) -> Any:
        if self._is_first and name != "exceptions":
            self._is_first = False
            raise GenericError("Generic S3 error: HTTP error: error reading a body")
        return getattr(obstore, name)


class _Files:
    """An Arrow file system that notes each opened file as a read."""

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
                # The content is read at once, because the file may be restored before the reader
                # reads it.
                content = whole.read()
            if share is None:
                return pa.BufferReader(content)
            return pa.PythonFile(_Short(content, share), mode="r")

        return opened


class _Short(io.BytesIO):
    """A file with the size of its content that delivers only a share of it."""

    def __init__(self, content: bytes, share: float) -> None:
        super().__init__(content)
        self._end = int(share * len(content))

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._end - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def failing_reads(root: str, fails: int, kind: int) -> Iterator[FailingReads]:
    """Let one read in the block fail."""
    reads = FailingReads(root, fails, kind)
    try:
        with telling_of_reads(reads):
            yield reads
    finally:
        reads.restore()


@contextmanager
def telling_of_reads(reads: Reads) -> Iterator[None]:
    """Call the listener for each read in the block."""
    global _now, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_heard)
        _is_hooked = True

    # The class does not hold the listener: a table may live longer, through what the listener
    # releases.
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
    """Note a read of a table by delta-rs. The listener may shorten the table's newest file."""
    reads = _now
    if reads is None:
        return
    # An open table has a URL, also for a local folder.
    path, file = local_folder(str(uri)) or Path(str(uri)), None
    if isinstance(reads, FailingReads):
        file = reads.newest(path / folder, pattern)
    if reads.read(path, file) is not None:
        raise DeltaError(f"a file of {uri} ends too early")


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    # Python opens Arrow's files without this event.
    if _now is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, os.PathLike)) and _reads_only(mode, flags):
            # An open as by `flush` is no read.
            _heard_of(_now, path, None if mode is None else Path(path))
    elif event in ("os.listdir", "os.scandir"):
        _heard_of(_now, arguments[0], None)


def _heard_of(reads: Reads, path: object, file: Path | None) -> None:
    if reads.read(path, file) is not None:
        raise error_of(BROKEN, path)


def _reads_only(mode: str | None, flags: int) -> bool:
    return mode in ("r", "rb") if mode is not None else not flags & (os.O_WRONLY | os.O_RDWR)


def count_files(patch: pytest.MonkeyPatch) -> None:
    """Let file systems that readers open from now on count the files that they open.

    Arrow itself opens the files of a dataset: these count at the call (`telling_of_reads`).
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
        # A short read does not change the file: size and time are those of the whole file.
        _Current().restore()
        return stamp(self, path)

    patch.setattr(Disk, "stamp", stamp_of_whole)


class _Current:
    """The reads that are counted now, if any."""

    def read(self, path: object, file: Path | None = None) -> float | None:
        return None if _now is None else _now.read(path, file)

    def restore(self) -> None:
        if isinstance(_now, FailingReads):
            _now.restore()
