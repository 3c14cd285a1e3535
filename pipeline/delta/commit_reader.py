"""Reading a table's commits one by one, on any store.

A look at the next commit is one attempt to open a file, whatever the table's size.
"""

from __future__ import annotations

from pyarrow.fs import FileSelector, FileSystem

from group_coordinator.pipeline.clock import Freshness, monotonic
from group_coordinator.pipeline.delta.log import (
    NOTE,
    LastCheckpoint,
    LogGone,
    commit_name,
    newest_checkpoint,
)
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import is_in_store

# How often a reader that finds no commit asks whether it was cleaned up, s.
GONE_CHECK_S = 1.0
# No clean-up of a log in a store deletes a commit that is younger, s.
CLEANED_S = ObjectStore.costs.freed_s


def read_commit(files: FileSystem, version: int) -> bytes | None:
    """Return the content of a version's commit, None if there is no such version yet."""
    # No writer commits nothing: an empty file is one that is being written in place.
    return _read(files, f"_delta_log/{commit_name(version)}") or None


def noted_checkpoint(files: FileSystem) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint, None without a note; see `log.newest_checkpoint`."""
    return newest_checkpoint(
        _read(files, f"_delta_log/{NOTE}"),
        lambda: (each.base_name for each in files.get_file_info(FileSelector("_delta_log"))),
    )


class GoneCheck:
    """Tells a commit that was cleaned up from one that nobody has written yet.

    A reader that was suspended for longer than `delta.logRetentionDuration` would wait for ever for
    the first commit that it missed. A call costs one more file to open: in a local folder every
    `GONE_CHECK_S`; in a store, where that is a request, only if the reader has not called for
    `CLEANED_S`.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._is_store = is_in_store(files)
        self._checked_s = monotonic()
        self._called = Freshness()

    def __call__(self, version: int) -> None:
        """Raise LogGone if `version`, whose commit was not found, is one that was cleaned up."""
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


def _read(files: FileSystem, path: str) -> bytes | None:
    try:
        with files.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None
