"""An object store, request by request: S3, ADLS and GCS by the URI of a folder in them.

delta-rs opens a table by listing its log, and again after each commit: ten requests an append, of
which three are lists. What this project does all the time needs fewer: to look for the next commit
is one GET, to append one PUT of a file and one of a commit, which the store creates only if it is
not there (`If-None-Match`, RFC 9110). Credentials and endpoints are found where delta-rs finds
them, in the environment: both are made from the same library, `object_store`.

Errors are OSErrors: FileNotFoundError for what is not there, FileExistsError for what is there
already, StoreRefusal for what is refused, and StoreError for all others, among them those after
which it is not known whether the store did what it was asked (`pipeline.delta.store_errors`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, unquote, urlparse

import obstore
import pyarrow as pa
from msgspec import Struct
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.delta.store_errors import StoreError, meant
from group_coordinator.pipeline.errors import Failure, first_line

if TYPE_CHECKING:
    from pathlib import Path

    from obstore import GetResult
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

log = logging.getLogger(__name__)

# What the first request for a file asks for, bytes: all of nearly every file. The answer says how
# large the file is, so that nobody has to ask for that first.
FIRST_BYTES = 8 << 20
# How often, and for how long, the library repeats a request that the store does not do: for 2 to
# 3 s where each is refused at once.
RETRY: RetryConfig = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
CLIENT: ClientConfig = {
    "timeout": timedelta(seconds=20),
    "connect_timeout": timedelta(seconds=5),
}
_EMPTY_RANGE = "416"
# How long a store that has answered before is asked again, s, each time with the library's own
# repetitions: less than a coordinator's `progress.timeout.ms`. One that has not, such as a server
# whose name was mistyped, is not.
PATIENCE_S = 45.0
_PAUSE_S = 0.5
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


class Listed(Struct, frozen=True):
    """An object of a list: its path below the folder, its size in bytes and its time, ms."""

    path: str
    size: int
    modified_ms: int


def _again(
    do: Callable[Concatenate[Folder, _Asked], _Answer],
) -> Callable[Concatenate[Folder, _Asked], _Answer]:
    """Do it again if it failed, which may be: what is done twice has the same effect as once.

    The library's own time for repetitions is over at once in a process that stood still meanwhile.
    """

    @functools.wraps(do)
    def doing(folder: Folder, /, *arguments: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        until = monotonic() + PATIENCE_S
        first = True
        while True:
            try:
                return do(folder, *arguments, **named)
            except StoreError:
                if not folder.bucket.has_answered or (monotonic() >= until and not first):
                    raise
            first = False
            sleep(_PAUSE_S)

    return doing


class Folder:
    """The objects below one URI; paths are relative to it. For any number of threads.

    A local folder is a store as well, so that tests need no other one.
    """

    def __init__(self, uri: str) -> None:
        url = urlparse(uri if "://" in uri else f"file://{quote(uri)}")
        self.uri = uri.rstrip("/")
        self.bucket = bucket_of(f"{url.scheme}://{url.netloc}")
        self._store = self.bucket.store
        self._prefix = f"{unquote(url.path).strip('/')}/".lstrip("/")

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        # Another process has its own connections, which all its folders of the bucket share.
        return Folder, (self.uri,)

    @_again
    def read(self, path: str) -> bytes | None:
        """Return an object's content, None if there is none; one GET."""
        try:
            with self.bucket.asked(path):
                return bytes(obstore.get(self._store, self._prefix + path).bytes())
        except FileNotFoundError:
            return None

    @_again
    def read_first(self, path: str) -> tuple[bytes, int]:
        """Return the first FIRST_BYTES of an object, and its size; one GET."""
        try:
            with self.bucket.asked(path):
                got: GetResult = obstore.get(
                    self._store, self._prefix + path, options={"range": (0, FIRST_BYTES)}
                )
                return bytes(got.bytes()), int(got.meta["size"])
        except StoreError as error:
            if error.status != _EMPTY_RANGE:
                raise
            # S3 has no first bytes of an empty object.
            return b"", 0

    @_again
    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to, and without, `end`."""
        with self.bucket.asked(path):
            return bytes(obstore.get_range(self._store, self._prefix + path, start=start, end=end))

    def create(self, path: str, content: bytes) -> None:
        """Create an object; raises FileExistsError if it is there. One conditional PUT.

        A PUT that the store did, and whose answer was lost, may be repeated within this call, and
        is then refused by the object that it has created itself.
        """
        with self.bucket.asked(path):
            obstore.put(
                self._store, self._prefix + path, content, mode="create", use_multipart=False
            )

    @_again
    def write(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        with self.bucket.asked(path):
            obstore.put(self._store, self._prefix + path, content)

    @_again
    def upload(self, local: Path, path: str) -> None:
        """Create or replace an object by a local file, in parts if it is large."""
        with self.bucket.asked(path):
            obstore.put(self._store, self._prefix + path, local)

    @_again
    def download(self, path: str, local: Path) -> None:
        """Write an object to a local file."""
        with self.bucket.asked(path), local.open("wb") as file:
            for chunk in obstore.get(self._store, self._prefix + path).stream():
                file.write(chunk)

    @_again
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error."""
        try:
            with self.bucket.asked(self.uri):
                obstore.delete(self._store, [self._prefix + path for path in paths])
        except FileNotFoundError:
            # S3 says nothing of what is not there. Of GCS the client takes such an answer for an
            # error, after which it asks for no more.
            for path in paths:
                with contextlib.suppress(FileNotFoundError), self.bucket.asked(path):
                    obstore.delete(self._store, self._prefix + path)

    @_again
    def look_up(self, path: str) -> Listed | None:
        """Return what a list would say of an object, None if there is none; one HEAD."""
        try:
            with self.bucket.asked(path):
                return self._listed(obstore.head(self._store, self._prefix + path))
        except FileNotFoundError:
            return None

    @_again
    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the objects below a path, those of the least names; `most` None: all.

        A LIST for every thousand.
        """
        found: list[Listed] = []
        with self.bucket.asked(self.uri):
            pages: Iterator[Sequence[Any]] = iter(
                obstore.list(self._store, self._prefix + below, chunk_size=1000)
            )
            for page in pages:
                found += map(self._listed, page)
                if most is not None and len(found) >= most:
                    break
        return sorted(found, key=lambda each: each.path)[:most]

    def _listed(self, meta: Any) -> Listed:
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        return Listed(meta["path"][len(self._prefix) :], int(meta["size"]), modified_ms)


class _Bucket:
    """A bucket or a container with its connections, and whether it answers."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.has_answered = False
        self._silent_since: float | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def asked(self, path: str) -> Iterator[None]:
        """Ask for something at a path; raises as `Folder` does. Says when answers fail to come."""
        try:
            yield
        except (BaseError, FileNotFoundError, ValueError) as error:
            meaning = meant(error, path)
            if isinstance(meaning, StoreError) and meaning.status != _EMPTY_RANGE:
                self._has_failed(meaning)
            else:
                self._answers()
            raise meaning from error
        self._answers()

    def _has_failed(self, error: StoreError) -> None:
        with self._lock:
            is_first = self.has_answered and self._silent_since is None
            if is_first:
                self._silent_since = monotonic()
        if is_first:
            log.warning("the store is asked again for up to %.0f s: %s", PATIENCE_S, error)

    def _answers(self) -> None:
        self.has_answered = True
        if self._silent_since is None:
            return
        with self._lock:
            since, self._silent_since = self._silent_since, None
        if since is not None:
            log.info("the store answers again after %.1f s", monotonic() - since)


@functools.lru_cache(maxsize=64)
def bucket_of(uri: str) -> _Bucket:
    """The bucket of a URI: one for the whole process."""
    try:
        if uri == "file://":
            return _Bucket(LocalStore())
        client: ClientConfig = {**CLIENT, "allow_http": _allows_http(uri)}
        return _Bucket(from_url(uri, retry_config=RETRY, client_options=client))
    except (BaseError, ValueError) as error:
        raise Failure(f"{uri} is no store that can be used: {first_line(error)}") from error


def _allows_http(uri: str) -> bool:
    """Whether requests may go without TLS, as delta-rs has it: for GCS its key file tells."""
    scheme = urlparse(uri).scheme
    if scheme == "gs":
        return True
    cloud = "AWS" if scheme in ("s3", "s3a") else "AZURE"
    return os.environ.get(f"{cloud}_ALLOW_HTTP", "").lower() in ("true", "1")


# --- for pyarrow --------------------------------------------------------------------------------


class StoreFiles(FileSystemHandler):  # type: ignore[misc]
    """A folder of an object store as pyarrow's file system; a small file costs one request."""

    def __init__(self, uri: str) -> None:
        self._folder = Folder(uri)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFiles) and other._folder.uri == self._folder.uri

    def __hash__(self) -> int:
        return hash(self._folder.uri)

    def get_type_name(self) -> str:
        """The name of this kind of file system."""
        return "object-store"

    def normalize_path(self, path: str) -> str:
        """Paths are as they are."""
        return path

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file to be read from its beginning; it is read at once."""
        content = self._folder.read(path)
        if content is None:
            raise FileNotFoundError(f"{self._folder.uri}/{path} is not there")
        return pa.BufferReader(content)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file to be read in any order."""
        first, size = self._folder.read_first(path)
        if len(first) == size:
            return pa.BufferReader(first)
        return pa.PythonFile(_LargeFile(self._folder, path, first, size), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002
        """Open a file that is there once it is closed."""
        return pa.PythonFile(_NewFile(self._folder, path), mode="w")

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Tell what is at each path; a request for each."""
        return [self._info(path, self._folder.look_up(path)) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Tell of all files below a folder; there are no folders."""
        below = f"{selector.base_dir.strip('/')}/".lstrip("/")
        return [self._info(each.path, each) for each in self._folder.list(below)]

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._folder.delete([path])

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002
        """Delete all files below a folder."""
        below = f"{path.strip('/')}/".lstrip("/")
        self._folder.delete([each.path for each in self._folder.list(below)])

    def delete_root_dir_contents(self) -> None:
        """Delete all files."""
        self.delete_dir_contents("")

    def delete_dir(self, path: str) -> None:
        """Delete all files below a folder: a folder is nothing else."""
        self.delete_dir_contents(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: a store has no folders."""

    def move(self, src: str, dest: str) -> None:
        """Refuse: a store cannot rename."""
        raise NotImplementedError(f"{src} cannot be renamed to {dest}: a store copies")

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file through this process."""
        content = self._folder.read(src)
        if content is None:
            raise FileNotFoundError(f"{self._folder.uri}/{src} is not there")
        self._folder.write(dest, content)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Refuse: a store has no appends."""
        raise NotImplementedError(f"{path}: a store's objects cannot be appended to")

    @staticmethod
    def _info(path: str, found: Listed | None) -> FileInfo:
        if found is None:
            return FileInfo(path, FileType.NotFound)
        modified_ns = found.modified_ms * 1_000_000
        return FileInfo(path, FileType.File, size=found.size, mtime_ns=modified_ns)


class _LargeFile(io.RawIOBase):
    """An object whose first bytes were read; the others are asked for as they are wanted."""

    def __init__(self, folder: Folder, path: str, first: bytes, size: int) -> None:
        super().__init__()
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

    def read(self, size: int = -1, /) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(self._at, end)
        if end <= len(self._first):
            return self._first[start:end]
        return self._folder.read_range(self._path, start, end) if start < end else b""


class _NewFile(io.BytesIO):
    """What is written becomes an object when it is closed."""

    def __init__(self, folder: Folder, path: str) -> None:
        super().__init__()
        self._folder, self._path = folder, path

    def close(self) -> None:
        if not self.closed:
            self._folder.write(self._path, self.getvalue())
        super().close()
