"""The log of a table: reading and creating commits, on a disk or in a store.

The writer that creates a version's file owns the version (`storage.Store.create`).

A clean-up frees the names of the commits that it deletes. A writer that was suspended meanwhile may
create one again: such a late commit is read by no reader. A clean-up never deletes the newest Delta
checkpoint's version or later ones, so a writer reads `_last_checkpoint` *after* its commit: if the
checkpoint is older, the commit is in the log. The previous commit proves nothing, because it may be
late itself. In a store, where each read is a request, the check is omitted if the writer saw the
log's end within `Costs.freed_s`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import Freshness, back_off
from group_coordinator.pipeline.delta.commit import Action, NotWhole, parse_commit
from group_coordinator.pipeline.delta.storage import CommitStateUnknown, NotFlushed, Outcome, Store
from group_coordinator.pipeline.delta.table import (
    ATTEMPTS,
    NOTE,
    LastCheckpoint,
    local_folder,
    log_names,
    newest_checkpoint,
    open_delta,
    open_store,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.commit import Commit

log = logging.getLogger(__name__)

# The maximum number and size (bytes) of the commits in `Log.recent`.
_RECENT, _RECENT_BYTES = 1_000, 16_384


class LogGone(Exception):
    """A log that was cleaned up beyond the version that is to be read next."""


def log_uri(uri: str) -> str:
    """Return the URI of a table's `_delta_log` folder."""
    return f"{uri.rstrip('/')}/_delta_log"


def commit_name(version: int) -> str:
    """Return the file name of a version's commit."""
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    """Return the file name of a version's Delta checkpoint, if it is one Parquet file."""
    return f"{version:020}.checkpoint.parquet"


def commit_path(folder: Path, version: int) -> Path:
    """Return the path of a version's commit in the log's folder."""
    return folder / commit_name(version)


class Log:
    """The log of the table at `uri`; for one thread. The root of `store` is the log's folder.

    `recent` maps versions to the contents of commits that were read or created here. It is filled
    only for a store, where it saves requests.
    """

    def __init__(self, uri: str, store: Store) -> None:
        self.uri = uri
        self.store = store
        self.recent: dict[int, bytes] = {}
        # When the log's end was last seen. None for a disk, where that says nothing about the next
        # version's name.
        self._end = Freshness() if store.costs.freed_s else None
        self._is_behind = False

    def _knows_end(self) -> bool:
        return self._end is not None and self._end.is_within(self.store.costs.freed_s)

    def next_commit(self, version: int, is_sure: bool = True) -> list[Action] | None:
        """Return the actions of the commit after `version`, None if `version` is the newest.

        Unless `is_sure`, None is also returned, without a read, if the log's end was seen within
        `Costs.freed_s`. Then the caller may try to create the next version: the attempt fails if
        another writer has created it.

        Raises LogGone if that commit was cleaned up. Raises Failure if it stays empty, or if the
        table is gone. Raises NotWhole and other OSErrors.
        """
        content = self._next_content(version, is_sure)
        if content is None:
            return None
        try:
            return parse_commit(content)
        except NotWhole as error:
            raise NotWhole(
                f"version {version + 1} of {self.uri} cannot be read: {error}"
            ) from error

    def _next_content(self, version: int, is_sure: bool) -> bytes | None:
        if self._is_behind:
            self._is_behind = False
            raise LogGone(f"the log of {self.uri} was cleaned up beyond version {version}")
        if not is_sure and self._knows_end():
            return None
        seen = None if self._end is None else Freshness.now()
        content = self._read(version + 1)
        if content is None and not self._knows_end():
            seen = None if self._end is None else Freshness.now()
            # A clean-up writes a Delta checkpoint before it deletes older commits. Because the
            # checkpoint is read after the commit, a deleted commit is never taken for one that is
            # not written yet.
            if self._is_cleaned_beyond(version + 1, self.store.costs.is_remote):
                # Both may have been written since the first read of the commit.
                content = self._read(version + 1)
                if content is None:
                    raise LogGone(f"the log of {self.uri} no longer has version {version + 1}")
        # A found commit does not prove the log's end: it may be a late one.
        if content is None or self._knows_end():
            self._note(seen)
        if content is not None:
            self._keep(version + 1, content)
        return content

    def create(self, commit: Commit, version: int) -> None:
        """Create `commit` as `version`, after `next_commit(version - 1)` has returned None.

        Raises FileExistsError if another writer created that version. Raises CommitStateUnknown if
        it is unknown whether the version is this commit, or if the log was cleaned up beyond it.
        Raises NotFlushed if the commit exists but may not survive a power loss. Raises another
        OSError if it certainly does not exist.
        """
        seen = None if self._end is None else Freshness.now()
        commit.may_be_committed = True
        try:
            created = self.store.create(commit_name(version), commit.content, commit.flushed)
        except NotFlushed:
            raise
        except OSError:
            commit.may_be_committed = False
            raise
        if created.outcome is Outcome.TAKEN:
            commit.may_be_committed = False
            raise FileExistsError(
                f"another writer created version {version} of {self.uri}"
            ) from created.why
        unknown = f"it is unknown whether version {version} of {self.uri} was committed:"
        if created.outcome is Outcome.UNKNOWN:
            raise CommitStateUnknown(f"{unknown} {created.why}") from created.why
        if not self._knows_end() and self._may_be_late(version) and not self._has(commit):
            # The commit is late: no reader reads it, so this log must not either.
            self._is_behind = True
            raise CommitStateUnknown(f"{unknown} the log was cleaned up beyond it meanwhile")
        self._note(seen)
        self._keep(version, commit.content)

    def last_checkpoint(self) -> LastCheckpoint | None:
        """Return the newest Delta checkpoint, None without a note; see `newest_checkpoint`."""
        note = self.store.read(NOTE)
        if note is None:
            return None
        return newest_checkpoint(note, lambda: (each.path for each in self.store.list()))

    def _read(self, version: int) -> bytes | None:
        for attempt in range(ATTEMPTS):
            content = self.store.read(commit_name(version))
            if content is None or content:
                return content
            if self.store.costs.is_remote:
                break
            # No commit is empty: another engine creates the file in place and has not filled it
            # yet. Objects of a store are complete.
            back_off(attempt)
        raise Failure(f"the commit of version {version} of {self.uri} is empty")

    def _is_cleaned_beyond(self, version: int, checks_there: bool) -> bool:
        """Return whether the log may have been cleaned up to this version or a later one.

        With `checks_there`, raises Failure if the table is gone: in a store, which has no folders,
        a PUT of a commit would succeed without the table.
        """
        checkpoint = self.last_checkpoint()
        if checkpoint is not None:
            return checkpoint.version >= version
        # Before the first Delta checkpoint no commit is cleaned up.
        if checks_there and version and self.store.read(commit_name(version - 1)) is None:
            raise Failure(f"{self.uri} has no version {version - 1}: the table was deleted")
        return False

    def _may_be_late(self, version: int) -> bool:
        try:
            return self._is_cleaned_beyond(version, checks_there=True)
        except (OSError, Failure) as error:
            log.warning("could not check if version %d of %s is late: %s", version, self.uri, error)
            return True

    def _has(self, commit: Commit) -> bool:
        """Return whether the table has a commit's changes; False if that cannot be determined.

        A commit is identified by the files that it adds, or if it adds none, by those that it
        removes, because each file name is unique. A commit without files cannot be identified. Its
        transactions do not help: another writer may have reached the same versions.
        """
        added = {each.add.path for each in commit.actions if each.add is not None}
        removed = {each.remove.path for each in commit.actions if each.remove is not None}
        if not added and not removed:
            return False
        # Commands that only read import neither.
        from deltalake.exceptions import DeltaError

        from group_coordinator.pipeline.delta.data_file import data_files

        try:
            there = {file.path for file in data_files(open_delta(self.uri))}
        except (DeltaError, OSError) as error:
            log.warning("could not check if a commit is in %s: %s", self.uri, error)
            return False
        return not added.isdisjoint(there) if added else removed.isdisjoint(there)

    def _note(self, seen: tuple[float, int] | None) -> None:
        """Note that the log's end was seen at `seen`, the time before the request for it."""
        if self._end is not None and seen is not None:
            self._end.renew(seen)

    def _keep(self, version: int, content: bytes) -> None:
        if not self.store.costs.is_remote:
            return
        if len(content) <= _RECENT_BYTES:
            self.recent[version] = content
        if len(self.recent) > _RECENT:
            del self.recent[next(iter(self.recent))]


def open_log(uri: str) -> Log:
    """Return the log of a table."""
    return Log(uri, open_store(log_uri(uri)))


def time_of_new_rows(uri: str, version: int) -> int | None:
    """Return the timestamp (ms) of the first commit after `version` that adds rows.

    None without such a commit, 0 if it has no timestamp. Raises the errors of `Log.next_commit`.
    """
    log = open_log(uri)
    while (actions := log.next_commit(version)) is not None:
        # OPTIMIZE adds files without new rows.
        if any(each.add is not None and each.add.data_change for each in actions):
            infos = [each.commit_info for each in actions if isinstance(each.commit_info, dict)]
            times = [info.get("timestamp") for info in infos]
            return max((each for each in times if isinstance(each, int)), default=0)
        version += 1
    return None


def has_first_commit(store: Store) -> bool:
    """Return whether the table at a store's root has a commit of version 0; one read."""
    return store.read(f"_delta_log/{commit_name(0)}") is not None


def is_table(uri: str) -> bool:
    """Return whether a Delta table exists; at most two requests to a store.

    delta-rs would list the log, and block all threads of the process meanwhile.
    """
    folder = local_folder(uri)
    if folder is not None:
        return any(log_names(folder))
    log = open_store(log_uri(uri))
    # Version 0 is cleaned up only once there is a Delta checkpoint.
    return any(log.read(name) is not None for name in (commit_name(0), NOTE))
