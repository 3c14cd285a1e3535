"""Objects in S3, ADLS and GCS below a URI, with few requests.

An append is two PUTs, of a data file and of a commit, and a poll for the next commit is one GET.
(delta-rs lists the log after each commit: an append takes ten requests.) The store creates a commit
only if it does not exist (`If-None-Match`, RFC 9110). Credentials and endpoints come from the
environment, as for delta-rs, which uses the same library, `object_store`.

Errors are OSErrors: FileNotFoundError, FileExistsError, StoreRefusal for a refused request, and
StoreError for all other failures; some of these leave the outcome unknown.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, unquote, urlparse

import obstore

from group_coordinator.pipeline.clock import back_off, clock_ms, monotonic, sleep
from group_coordinator.pipeline.delta.bucket import (
    EMPTY_RANGE,
    RETRY_BUDGET_S,
    StoreError,
    bucket_of,
)
from group_coordinator.pipeline.delta.storage import Costs, Created, Listed, Outcome, settle

if TYPE_CHECKING:
    from pathlib import Path

    from obstore import GetResult

    from group_coordinator.pipeline.delta.storage import Buffer

log = logging.getLogger(__name__)

# The size of the first request for a file, bytes. It covers nearly every file, and the response has
# the file's size, which saves a separate request.
FIRST_BYTES = 8 << 20
# After this many attempts to create an object it is read: does it exist, and does the store answer?
_REPEATS = 4
# From this attempt on, `back_off` waits up to 250 ms.
_LATE = 7
_PAUSE_S = 0.5
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def _again(
    do: Callable[Concatenate[ObjectStore, _Asked], _Answer],
) -> Callable[Concatenate[ObjectStore, _Asked], _Answer]:
    """Retry an idempotent operation within RETRY_BUDGET_S.

    The library's own retry time is already over in a process that was suspended meanwhile.
    """

    @functools.wraps(do)
    def doing(folder: ObjectStore, /, *arguments: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        until = monotonic() + RETRY_BUDGET_S
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


class ObjectStore:
    """The objects below one URI; see `Store`. Thread-safe.

    A local folder is allowed too, for tests.
    """

    # No clean-up deletes a commit younger than `freed_s`: `delta.logRetentionDuration` is at least
    # ten minutes for every table of this project, and consumed logs are trimmed after an hour
    # (`pipeline.delta.log_trim`).
    costs = Costs(is_remote=True, freed_s=60.0)

    def __init__(self, uri: str) -> None:
        url = urlparse(uri if "://" in uri else f"file://{quote(uri)}")
        self.uri = uri.rstrip("/")
        self.bucket = bucket_of(f"{url.scheme}://{url.netloc}")
        self._store = self.bucket.store
        self._prefix = f"{unquote(url.path).strip('/')}/".lstrip("/")

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        # Another process opens its own connections.
        return ObjectStore, (self.uri,)

    @_again
    def read(self, path: str) -> bytes | None:
        """Return an object's content, None if it does not exist; one GET."""
        try:
            with self.bucket.asked(path):
                return bytes(obstore.get(self._store, self._prefix + path).bytes())
        except FileNotFoundError:
            return None

    @_again
    def read_first(self, path: str) -> tuple[bytes, int]:
        """Return the first FIRST_BYTES bytes of an object, and its size; one GET."""
        try:
            with self.bucket.asked(path):
                got: GetResult = obstore.get(
                    self._store, self._prefix + path, options={"range": (0, FIRST_BYTES)}
                )
                return bytes(got.bytes()), int(got.meta["size"])
        except StoreError as error:
            if error.status != EMPTY_RANGE:
                raise
            # S3 refuses any range of an empty object.
            return b"", 0

    @_again
    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` (inclusive) to `end` (exclusive)."""
        with self.bucket.asked(path):
            return bytes(obstore.get_range(self._store, self._prefix + path, start=start, end=end))

    def create(self, path: str, content: bytes, flushed: bool = False) -> Created:  # noqa: ARG002
        """See `Store`; a store needs no flush.

        A PUT without a response may be executed already, later, or never. So it is retried with the
        same content until the store answers. If the object then exists, its content tells which
        writer created it.
        """
        may_be_done = False
        until = monotonic() + RETRY_BUDGET_S
        for attempt in itertools.count(1):
            try:
                self.put_absent(path, content)
            except OSError as error:
                if isinstance(error, PermissionError) and not may_be_done:
                    raise
                may_be_done = True
                log.debug("%s/%s: %s", self.uri, path, error)
                is_told = isinstance(error, (FileExistsError, PermissionError))
                if is_told or attempt % _REPEATS == 0:
                    # `settle` reads the object, which waits for a store that does not answer.
                    created = settle(self, path, content, error)
                    is_free = created == (Outcome.UNKNOWN, error)
                    if not is_free or is_told or monotonic() >= until:
                        return created
                back_off(_LATE + attempt)
            else:
                return Created(Outcome.MADE)
        raise AssertionError("the last attempt returns or raises")

    def put_absent(self, path: str, content: bytes) -> None:
        """Create an object by one conditional PUT; raises FileExistsError if it exists.

        If the response to a successful PUT is lost, the library may retry it within this call. The
        retry is then refused because of the object that the PUT itself created.
        """
        with self.bucket.asked(path):
            obstore.put(
                self._store, self._prefix + path, content, mode="create", use_multipart=False
            )

    @_again
    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:  # noqa: ARG002
        """See `Store`."""
        with self.bucket.asked(path):
            obstore.put(self._store, self._prefix + path, bytes(content))
        return clock_ms()

    @_again
    def upload(self, local: Path, path: str) -> None:
        """Create or replace an object from a local file, in parts if it is large."""
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
        """Delete objects; missing objects are no error."""
        try:
            with self.bucket.asked(self.uri):
                obstore.delete(self._store, [self._prefix + path for path in paths])
        except FileNotFoundError:
            # GCS reports a missing object, unlike S3; the client takes that for an error and stops.
            for path in paths:
                with contextlib.suppress(FileNotFoundError), self.bucket.asked(path):
                    obstore.delete(self._store, self._prefix + path)

    @_again
    def look_up(self, path: str) -> Listed | None:
        """Return an object's entry as in a listing, None if it does not exist; one HEAD."""
        try:
            with self.bucket.asked(path):
                return self._listed(obstore.head(self._store, self._prefix + path))
        except FileNotFoundError:
            return None

    @_again
    def stamp(self, path: str) -> object | None:
        """See `Store`: the object's ETag, time and size; one HEAD."""
        try:
            with self.bucket.asked(path):
                meta: Any = obstore.head(self._store, self._prefix + path)
                return meta["e_tag"], meta["last_modified"], meta["size"]
        except FileNotFoundError:
            return None

    @_again
    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the objects below a path, sorted by name: all, or the first `most`.

        One LIST request per thousand objects.
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
