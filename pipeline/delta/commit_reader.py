"""Reading a table's commits one by one, and the files that they added, on any store.

A look at the next commit is one attempt to open a file, whatever the table's size.

In a store each commit and each file is a request, and nearly all of its time is waiting. So
requests run concurrently: a commit's files are requested as soon as the commit is read, together
with the next commits. A reader that stops at a known version knows how many commits exist. A reader
of the whole log requests one commit after the last one found. It requests more only after it found
several, because a request for a missing commit costs as much.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import Freshness, monotonic
from group_coordinator.pipeline.delta.commit import parse_commit
from group_coordinator.pipeline.delta.identity import SameTable
from group_coordinator.pipeline.delta.log import LogGone, commit_name
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.paths import is_outside
from group_coordinator.pipeline.delta.store_files import AT_ONCE, is_in_store
from group_coordinator.pipeline.delta.table import NOTE, LastCheckpoint, newest_checkpoint

# The interval at which a reader that finds no commit checks whether it was cleaned up, s.
GONE_CHECK_S = 1.0
# No clean-up of a log in a store deletes a commit that is younger than this, s.
CLEANED_S = ObjectStore.costs.freed_s
# Selects the row groups of a file by its commit's version and its tags. None: the tags do not tell,
# so all row groups are wanted.
Wanted = Callable[[int, "Mapping[str, str | None] | None"], "Sequence[bool] | None"]

# The files of a commit are read ahead if their total size is at most this, bytes: they wait in
# memory.
_SMALL_BYTES = 1 << 20


def read_commit(files: FileSystem, version: int) -> bytes | None:
    """Return the content of a version's commit, None if the version does not exist yet."""
    # No commit is empty: an empty file is being written in place.
    return _read(files, f"_delta_log/{commit_name(version)}") or None


def commit_time_s(files: FileSystem, version: int) -> float:
    """Return the modification time of a version's commit, in seconds since 1970-01-01 UTC."""
    info = files.get_file_info(f"_delta_log/{commit_name(version)}")
    return (info.mtime_ns or 0) / 1e9


def noted_checkpoint(files: FileSystem) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint, None without a note; see `table.newest_checkpoint`."""
    note = _read(files, f"_delta_log/{NOTE}")
    if note is None:
        return None
    return newest_checkpoint(
        note,
        lambda: (each.base_name for each in files.get_file_info(FileSelector("_delta_log"))),
    )


class GoneCheck:
    """A check that tells a commit that was cleaned up from one that is not written yet.

    It also finds a commit of another table. Without the check, a reader that was suspended for
    longer than `delta.logRetentionDuration` would wait forever for the first commit that it missed.
    The check opens one more file. In a local folder it is done every `GONE_CHECK_S`. In a store it
    is a request, so it is done only if the reader has not called for `CLEANED_S`.
    """

    def __init__(self, files: FileSystem, same: SameTable | None = None) -> None:
        self._files = files
        self._same = same
        self._is_store = is_in_store(files)
        self._checked_s = monotonic()
        self._called = Freshness()

    def __call__(self, version: int) -> None:
        """Raise LogGone if `version` was cleaned up; its commit was not found.

        Raises as `SameTable.check` does if the table was replaced, or cannot be found.
        """
        if self._same is not None:
            self._same.check_if_due(version - 1)
        if not self._is_due():
            return
        noted = noted_checkpoint(self._files)
        if noted is None or noted.version < version:
            return
        # The commit and the checkpoint may both have been written since the reader looked.
        if read_commit(self._files, version) is None:
            raise LogGone(f"the log no longer has version {version}")

    def _is_due(self) -> bool:
        if self._is_store:
            was_called = self._called.is_within(CLEANED_S)
            self._called.renew(Freshness.now())
            return not was_called
        now = monotonic()
        if now - self._checked_s < GONE_CHECK_S:
            return False
        self._checked_s = now
        return True


class RowsRemoved(LogGone):
    """A commit that removed rows, such as DELETE, RESTORE or an overwrite."""


class NewFile(NamedTuple):
    """A file that a commit added, with its wanted row groups (None for all) and `open`.

    `open` may be called once, and raises FileNotFoundError if the file is gone.
    """

    path: str
    wanted: Sequence[bool] | None
    open: Callable[[], pa.NativeFile]


def new_files(
    files: FileSystem,
    version: int,
    wanted: Wanted | None,
    last: int | None = None,
    refuses_removals: bool = False,
) -> Iterator[list[NewFile]]:
    """Yield the wanted files of each commit from `version` to the last commit.

    A commit that removes files is a rewrite and yields no files. A commit without a wanted row
    group yields none either. `last`, if known, is the last version to request; it must exist. With
    `refuses_removals` a commit that removes rows raises RowsRemoved.
    """
    read = functools.partial(_new_of, files, wanted, refuses_removals)
    found: list[NewFile] | None = None
    if not is_in_store(files):
        while (found := read(version)) is not None:
            yield found
            version += 1
        return
    asking: deque[Future[list[NewFile] | None]] = deque()
    ask_next, count = version, 0
    while True:
        # Request all commits that are known to exist, within the limit; otherwise at least one.
        most = max(1, count // 2) if last is None else last + 1 - ask_next + len(asking)
        while len(asking) < min(AT_ONCE, most):
            asking.append(background.submit(_beside(), functools.partial(read, ask_next)))
            ask_next += 1
        if found is not None:
            yield found
        found = asking.popleft().result() if asking else None
        if found is None:
            return
        count += 1


def _new_of(
    files: FileSystem, wanted: Wanted | None, refuses_removals: bool, version: int
) -> list[NewFile] | None:
    content = read_commit(files, version)
    if content is None:
        return None
    actions = parse_commit(content)
    removed = [action.remove for action in actions if action.remove is not None]
    if refuses_removals and any(each.data_change for each in removed):
        raise RowsRemoved(f"version {version} has removed rows")
    if removed:
        return []
    adds = [action.add for action in actions if action.add is not None]
    flags = [None if wanted is None else wanted(version, add.tags) for add in adds]
    if all(each is not None and not any(each) for each in flags):
        return []
    sizes = [_SMALL_BYTES if add.size is None else add.size for add in adds]
    is_ahead = is_in_store(files) and sum(sizes) <= _SMALL_BYTES
    return [
        NewFile(add.file, each, _opener(files, add.file, is_ahead))
        for add, each in zip(adds, flags, strict=True)
    ]


def _opener(files: FileSystem, path: str, is_ahead: bool) -> Callable[[], pa.NativeFile]:
    opener: Callable[[], pa.NativeFile] = functools.partial(files.open_input_file, path)
    if is_ahead and not is_outside(path):
        return background.submit(_beside(), opener).result
    return opener


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """Return the thread pool that reads ahead, shared by all readers of the process."""
    return ThreadPoolExecutor(AT_ONCE, "read-ahead")


def _read(files: FileSystem, path: str) -> bytes | None:
    try:
        with files.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None
