"""Checks that a table and its log are still those that a follower or writer has read.

A table that was deleted and created again has another id (`metaData.id`). An older copy that was
put back has the same id, but its log is shorter or has other commits. COMMITS.md has the effects of
ALTER, RESTORE and overwrites.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from pyarrow.fs import FileSelector, FileSystem

from group_coordinator.pipeline.clock import Freshness, monotonic
from group_coordinator.pipeline.delta.log import LogGone, commit_name, open_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import is_in_store
from group_coordinator.pipeline.delta.table import (
    NOTE,
    LastCheckpoint,
    newest_checkpoint,
    open_delta,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.delta.commit import Action


# The interval between checks on a disk, and in a store, where each is a request; s.
CHECK_S, STORE_CHECK_S = 1.0, 10.0

# The interval at which a reader that finds no commit checks whether it was cleaned up, s.
GONE_CHECK_S = 1.0
# The minimum age (s) of a commit that a clean-up deletes from a log in a store.
CLEANED_S = ObjectStore.costs.freed_s


class TableReplacedError(Failure):
    """A table that was replaced by another one, or by an older copy of itself."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(
            f"the table {uri} was replaced while it was in use: {why}. Restart this process, a "
            "coordinator without its streaming checkpoint: it then loads its state from the tables"
        )
        self.why = why


def check_not_restored(uri: str, version: int, actions: Iterable[Action]) -> None:
    """Raise TableReplacedError if the version's commitInfo has the operation RESTORE."""
    infos = [each.commit_info for each in actions if isinstance(each.commit_info, dict)]
    if any(info.get("operation") == "RESTORE" for info in infos):
        raise TableReplacedError(uri, f"version {version} is a RESTORE of an earlier version")


class TableAway(Failure):
    """A table that was read before and cannot be found now."""


class _Known(NamedTuple):
    """A commit that was read, with a stamp that differs for another file of the same name."""

    version: int
    stamp: object


def table_number(table_id: str) -> int:
    """Return a number that identifies a table by its id; a recreated table has another one.

    The number is 48 bits of a hash, so it can be the version of a transaction identifier.
    """
    return int.from_bytes(sha256(table_id.encode()).digest()[:6], "big")


class SameTable:
    """A check that a table is still the one that was read before; for one thread.

    It compares the newest commit that was read: one `stat` on a disk, one HEAD in a store, two
    after new commits. The table is opened only by the first check, and if that commit differs or is
    gone, as after a clean-up.
    """

    def __init__(
        self,
        uri: str,
        table_id: str | None = None,
        at: int | None = None,
        at_once: bool = False,
        number: int | None = None,
    ) -> None:
        """Begin with the id of the table that was read, or its `table_number`, if it is known.

        `at` is the newest version that was read; on a disk its commit is looked up now. With
        `at_once` the first check is due now.
        """
        self._uri = uri
        self._log = open_log(uri)
        self.table_id = table_id
        self._number = number
        self._known: _Known | None = None
        self._interval_s = STORE_CHECK_S if self._log.store.costs.is_remote else CHECK_S
        self._due_s = monotonic() + (0.0 if at_once else self._interval_s)
        if at is not None and not self._log.store.costs.is_remote:
            self._known = self._seen(at)

    @property
    def is_remote(self) -> bool:
        """Whether each check is a request to a store."""
        return self._log.store.costs.is_remote

    def is_due(self) -> bool:
        """Return whether the interval since the last successful check is over."""
        return monotonic() >= self._due_s

    def check_if_due(self, at: int) -> None:
        """Check as `check` does, if a check is due; a failed check stays due."""
        if self.is_due():
            self.check(at)

    def check(self, at: int) -> None:
        """Raise TableReplacedError unless the log up to version `at` is the one that was read.

        Raises TableAway if the table cannot be found; DeltaError and OSError if it cannot be read.
        """
        if at >= 0:
            self._check(at)
        self._due_s = monotonic() + self._interval_s

    def is_other(self, table_id: object) -> TableReplacedError | None:
        """Return a TableReplacedError if `table_id` identifies another table, otherwise None."""
        if table_id == self.table_id:
            return None
        if self.table_id is not None:
            return TableReplacedError(self._uri, f"its id is {table_id}, and was {self.table_id}")
        if self._number in (None, table_number(str(table_id))):
            return None
        why = f"its id is {table_id}, and its reader began with another table"
        return TableReplacedError(self._uri, why)

    def check_actions(self, actions: Iterable[Action]) -> None:
        """Raise TableReplacedError if one of a commit's actions describes another table."""
        for each in actions:
            if each.meta_data is not None:
                other = self.is_other(each.meta_data.get("id"))
                if other is not None:
                    raise other

    def _check(self, at: int) -> None:
        known = self._known
        if known is not None and self._seen(known.version) == known:
            if known.version >= at:
                return
            newest = self._seen(at)
            if newest is not None:
                self._known = newest
                return
        # The first comparison opens the table, to learn its id.
        self._open(at)

    def _open(self, at: int) -> None:
        from deltalake.exceptions import TableNotFoundError

        try:
            handle = open_delta(self._uri)
        except TableNotFoundError as error:
            raise TableAway(f"the table {self._uri} cannot be found: restore it") from error
        table_id, newest = str(handle.metadata().id), int(handle.version())
        other = self.is_other(table_id)
        if other is not None:
            raise other
        known = self._known
        if known is not None:
            now = self._seen(known.version)
            # A suspended writer may have created a version again after a clean-up deleted it.
            if now is not None and now != known and not self._may_be_freed(known.version):
                raise TableReplacedError(
                    self._uri, f"version {known.version} is another commit than before"
                )
        if newest < at and self._seen(at) is None:
            raise TableReplacedError(
                self._uri, f"its log ends at version {newest}, but was read up to version {at}"
            )
        self.table_id = table_id
        self._known = self._seen(at) or self._seen(newest)

    def _may_be_freed(self, version: int) -> bool:
        newest = self._log.last_checkpoint()
        return newest is not None and newest.version > version

    def _seen(self, version: int) -> _Known | None:
        stamp = self._log.store.stamp(commit_name(version))
        return None if stamp is None else _Known(version, stamp)


# --- commits of the log ---------------------------------------------------------------------------


def read_commit(files: FileSystem, version: int) -> bytes | None:
    """Return the content of a version's commit, None if it does not exist yet."""
    # An empty file is a commit that another engine is still writing in place.
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
    """A check whether a missing commit was cleaned up, or does not exist yet.

    A reader that was suspended for longer than `delta.logRetentionDuration` would otherwise wait
    forever for the first commit that it missed. With `same`, the check also detects a replaced
    table.

    On a disk it reads `_last_checkpoint` every `GONE_CHECK_S`. In a store, where that is a request,
    it does so only if it was not called for `CLEANED_S`.
    """

    def __init__(self, files: FileSystem, same: SameTable | None = None) -> None:
        self._files = files
        self._same = same
        self._is_store = is_in_store(files)
        self._checked_s = monotonic()
        self._called = Freshness()

    def __call__(self, version: int) -> None:
        """Raise LogGone if the missing commit of `version` was cleaned up.

        Raises the errors of `SameTable.check` if the table was replaced, or cannot be found.
        """
        if self._same is not None:
            self._same.check_if_due(version - 1)
        if not self._is_due():
            return
        noted = noted_checkpoint(self._files)
        if noted is None or noted.version < version:
            return
        # Both may have been written since the reader's attempt.
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
