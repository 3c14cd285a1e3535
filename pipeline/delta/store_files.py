"""The files of a table, on a disk or in an object store, as a pyarrow file system.

A request to a store takes tens of milliseconds of waiting, so several run concurrently.

A store's file system is written in Python, and an Arrow thread needs Python to release the bytes
that it has read, a moment after the rows are complete. If Python ended just then, the process would
abort. So an ending process waits until Arrow has released all bytes.
"""

from __future__ import annotations

import atexit
import io
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pyarrow as pa
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileSystemHandler,
    FileType,
    LocalFileSystem,
    PyFileSystem,
    SubTreeFileSystem,
)

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.table import is_outside, local_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from group_coordinator.pipeline.delta.storage import Listed

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# The maximum wait (s) of an ending process. Arrow threads release bytes within milliseconds; a
# table that still exists may hold some until the end, which is safe.
_LET_GO_S = 1.0

# The maximum number of requests in flight. Each response is held in memory: a small file, or the
# first `object_store.FIRST_BYTES` of a larger one.
AT_ONCE = 16


def open_files(uri: str) -> FileSystem:
    """Return the file system of a table, with the table at its root."""
    folder = local_folder(uri)
    if folder is None:
        return PyFileSystem(StoreFiles(uri))
    return _TableFolder(str(folder), LocalFileSystem())


class OutsideTable(OSError):
    """A path that would leave its table's folder; the file is not opened."""


def _check_inside(path: str) -> None:
    if is_outside(path):
        raise OutsideTable(f"{path!r} lies outside of the table's folder")


class _TableFolder(SubTreeFileSystem):  # type: ignore[misc]
    """A table's folder that opens no file outside of it, although pyarrow follows `..`."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file to be read in any order."""
        _check_inside(path)
        return super().open_input_file(path)


def is_in_store(files: FileSystem) -> bool:
    """Return whether a file system of `open_files` is in a store, where each read is a request."""
    return isinstance(files, PyFileSystem)


def side_by_side(
    work: Callable[[_Item], _Result], items: Iterable[_Item], most: int = AT_ONCE
) -> Iterator[_Result]:
    """Yield the result of `work` for each item, in their order; at most `most` run at once.

    An error is raised in the turn of its item. Then no more items are started, and those in flight
    are awaited.
    """
    under_way: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(most, "side-by-side") as pool:
        try:
            for item in items:
                under_way.append(background.submit(pool, partial(work, item)))
                if len(under_way) == most:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()


class Lent(bytearray):
    """Bytes of an object that Arrow holds until they are decoded."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        _lend(self)


def await_let_go(timeout: float = _LET_GO_S) -> None:
    """Wait at most `timeout` s until Arrow has released all bytes of `Lent`."""
    deadline = monotonic() + timeout
    while _lent and monotonic() < deadline:
        sleep(0.002)


_lent: list[weakref.ref[object]] = []


def _lend(thing: object) -> None:
    # `remove` is not Python code: an ending process could continue between two lines of Python,
    # while the releasing thread still runs them.
    _lent.append(weakref.ref(thing, _lent.remove))


atexit.register(await_let_go)


class StoreFiles(FileSystemHandler):  # type: ignore[misc]
    """A folder of an object store as pyarrow's file system; a small file costs one request."""

    def __init__(self, uri: str) -> None:
        self._folder = ObjectStore(uri)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFiles) and other._folder.uri == self._folder.uri

    def __hash__(self) -> int:
        return hash(self._folder.uri)

    def get_type_name(self) -> str:
        """Return the type name that pyarrow shows."""
        return "object-store"

    def normalize_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Read a whole file into memory and open it."""
        content = self._folder.read(path)
        if content is None:
            raise FileNotFoundError(f"{self._folder.uri}/{path} does not exist")
        return pa.BufferReader(Lent(content))

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        _check_inside(path)
        first, size = self._folder.read_first(path)
        if len(first) == size:
            return pa.BufferReader(Lent(first))
        return pa.PythonFile(_LargeFile(self._folder, path, first, size), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002
        """Open a new file, which is created when it is closed."""
        return pa.PythonFile(_NewFile(self._folder, path), mode="w")

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Return an entry for each path; one request each."""
        return [self._info(path, self._folder.look_up(path)) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Return all files below a folder; there are no folders."""
        below = f"{selector.base_dir.strip('/')}/".lstrip("/")
        return [self._info(each.path, each) for each in self._folder.list(below)]

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._folder.delete([path])

    def delete_dir_contents(self, path: str = "", missing_dir_ok: bool = False) -> None:  # noqa: ARG002
        """Delete all files below a folder."""
        below = f"{path.strip('/')}/".lstrip("/")
        self._folder.delete([each.path for each in self._folder.list(below)])

    delete_root_dir_contents = delete_dir_contents

    def _refuse(self, *_: object) -> NoReturn:
        raise NotImplementedError("an object store has no folders, renames, copies and appends")

    create_dir = delete_dir = move = copy_file = open_append_stream = _refuse

    @staticmethod
    def _info(path: str, found: Listed | None) -> FileInfo:
        if found is None:
            return FileInfo(path, FileType.NotFound)
        modified_ns = found.modified_ms * 1_000_000
        return FileInfo(path, FileType.File, size=found.size, mtime_ns=modified_ns)


class _LargeFile(io.RawIOBase):
    """An object with its first bytes in memory; other ranges are requested when they are read."""

    def __init__(self, folder: ObjectStore, path: str, first: bytes, size: int) -> None:
        super().__init__()
        _lend(self)
        self._folder, self._path, self._first, self._size = folder, path, first, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int = -1, /) -> bytes | Lent:
        end = self._size if size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(self._at, end)
        if end <= len(self._first):
            return Lent(self._first[start:end])
        return Lent(self._folder.read_range(self._path, start, end)) if start < end else b""


class _NewFile(io.BytesIO):
    def __init__(self, folder: ObjectStore, path: str) -> None:
        super().__init__()
        self._folder, self._path = folder, path

    def close(self) -> None:
        if not self.closed:
            self._folder.write(self._path, self.getvalue())
        super().close()
