"""Writers of a table: they commit after the commits of all other writers.

A writer reads no data file, and another writer's commit is a conflict only if it changed something
that this commit depends on. So a commit takes the same time in a table of any size.

On a disk each commit gets a checksum, `<version>.crc`, with which Spark reads a new version in 20
ms instead of 110 to 170 ms. It has the metadata verbatim, because Spark compares the text with the
metadata in the log (DELTA_STATE_RECOVER_ERROR). Source: Delta's PROTOCOL.md, "Version Checksum
File".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import back_off, monotonic
from group_coordinator.pipeline.delta.checkpoint import CHECKPOINT_EVERY, CLEAN_UP_S, checkpoint
from group_coordinator.pipeline.delta.commit import Changes, Move
from group_coordinator.pipeline.delta.data_file import COMMITTABLE_S
from group_coordinator.pipeline.delta.log import LogGone, open_log
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.protocol import APPEND_ONLY, check_writable
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.storage import NotFlushed, write_partial
from group_coordinator.pipeline.delta.table import ATTEMPTS, local_folder
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from group_coordinator.pipeline.clock import Freshness
    from group_coordinator.pipeline.delta.data_file import DataFile
    from group_coordinator.pipeline.delta.replay import Sizes
    from group_coordinator.pipeline.delta.snapshot import Change, LiveFiles

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class AppendConflict(Failure):
    """A commit that lost to other writers `ATTEMPTS` times; it is not in the table."""


class RewriteConflict(Failure):
    """A commit that another process's rewrite forbids; it is not in the table."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f"another process changed {table} meanwhile: {why}")


class TooOld(Exception):
    """A file to commit that VACUUM may have deleted: its rows must be written again."""


class Writer:
    """A writer that commits to one table; for one thread.

    With `flushed` an acknowledged commit to a disk survives a power loss. `may_be_committed` says
    whether the last commit may be in the table, so that its files must stay.

    Raises deltalake's TableNotFoundError.
    """

    def __init__(self, uri: str, flushed: bool, ends_by_restore: bool = False) -> None:
        self.uri = uri
        self.snapshot = Snapshot(uri, ends_by_restore)
        self.may_be_committed = False
        self._folder = local_folder(uri)
        self._flushed = flushed
        self._not_flushed: NotFlushed | None = None
        self._described = self.snapshot.described
        self._cleans_up_at = monotonic() + CLEAN_UP_S

    def versions(self, app_ids: list[str]) -> Mapping[str, int | None]:
        """Return the versions that applications have reached, as of the last read.

        Raises NotFlushed if an earlier commit has raised it.
        """
        self._check_flushed()
        return self.snapshot.versions(app_ids)

    def commit(
        self, changes: Changes, begun: Freshness | None = None
    ) -> int | Mapping[str, int | None]:
        """Commit after the commits of all other writers; return the new version.

        If the versions of the changes' identifiers forbid the commit, nothing is committed, and the
        table's versions of them are returned. `begun` is the time before the files were written:
        after half an hour, TooOld is raised.

        Raises RewriteConflict if a file to be removed is gone, or if the table's metadata was
        changed. Raises CommitStateUnknown if the commit may or may not be in the table. Raises
        NotFlushed, now and from then on, if a power loss may undo the commit. Raises
        AppendConflict, UnsupportedTable and OSError.
        """
        self.may_be_committed = False
        self._check_flushed()
        app_ids = [
            *(move.app_id for move in changes.moves),
            *(each.app_id for each in changes.bounds),
        ]
        for attempt in range(ATTEMPTS):
            # In a store, where each read is a request, the first attempt relies on the state that
            # was read before. If that is old, the version is taken and the attempt fails. An old
            # state never refuses a commit.
            is_sure = bool(attempt or changes.remove)
            self.snapshot.follow(is_sure=is_sure)
            found = self.snapshot.versions(app_ids)
            if are_forbidden(changes, found):
                if is_sure:
                    return found
                continue
            self._check(changes)
            if begun is not None and not begun.is_within(COMMITTABLE_S):
                raise TooOld(f"a file of {self.uri} was not committed within half an hour")
            commit = changes.commit(found, self._flushed)
            try:
                self.snapshot.create(commit)
            except FileExistsError:
                back_off(attempt)
                continue
            except NotFlushed as error:
                self._not_flushed = error
                raise
            finally:
                self.may_be_committed = commit.may_be_committed
            self._follow_up()
            return self.snapshot.state.version
        raise AppendConflict(f"other writers committed first to {self.uri} {ATTEMPTS} times")

    def _check_flushed(self) -> None:
        if self._not_flushed is not None:
            raise NotFlushed(*self._not_flushed.args)

    def _check(self, changes: Changes) -> None:
        features = set(self.snapshot.features)
        if changes.remove and changes.data_change and self.snapshot.is_append_only:
            features.add(APPEND_ONLY)
        if features:
            rewrites = bool(changes.add and changes.remove) and changes.data_change
            check_writable(self.uri, features, rewrites)
        if changes.remove and self.snapshot.described != self._described:
            raise RewriteConflict(self.uri, "its metadata was changed")
        for file in changes.remove:
            if file.path not in self.snapshot.state.files:
                raise RewriteConflict(self.uri, f"{file.path} was removed")
            if quote(file.path, safe="/=") != file.path:
                raise Failure(
                    f"{self.uri}: the log encodes the path {file.path}: it cannot be removed"
                )

    def _follow_up(self) -> None:
        """Write the new version's checksum, and regularly start to write a Delta checkpoint."""
        version = self.snapshot.state.version
        if self._folder is not None:
            write_checksum(self._folder, self.snapshot.state)
        if version % CHECKPOINT_EVERY == 0:
            cleans_up = monotonic() >= self._cleans_up_at
            if cleans_up:
                self._cleans_up_at = monotonic() + CLEAN_UP_S
            known = dict(self.snapshot.log.recent)
            background.run("checkpoint", partial(checkpoint, self.uri, version, known, cleans_up))


class LiveWriter:
    """A writer that appends files to a table which the caller follows by `LiveFiles`.

    It commits only right after the version that the caller has read (`Writer` commits after any),
    so that the caller decides again after each commit of another writer. It keeps about
    `most_commits` commits in the log. For one thread.
    """

    def __init__(self, uri: str, most_commits: int) -> None:
        self._uri = uri
        self._most_commits = most_commits
        self._log = open_log(uri)

    def commit(
        self,
        live: LiveFiles,
        files: Sequence[DataFile],
        moves: Mapping[str, tuple[int | None, int]],
        unset: Sequence[str] = (),
    ) -> tuple[Change, LiveFiles] | None:
        """Commit files as the version after `live`; return the change and the position after it.

        `moves` maps each transaction identifier that changes to its versions before and after the
        commit. Identifiers in `unset` must never have been set. Returns None if another writer has
        created the version, or if the log was cleaned up beyond it. Raises CommitStateUnknown,
        UnsupportedTable, and another OSError if the commit certainly does not exist. Raises the
        errors of `LiveFiles.check_same`: a table that was created again would get a log with a gap.
        """
        check_writable(self._uri, live.features)
        changes = Changes(files, moves=[Move(name, *versions) for name, versions in moves.items()])
        expected = {name: before for name, (before, _) in moves.items()}
        commit = changes.commit({**expected, **dict.fromkeys(unset)}, flushed=False)
        try:
            if self._log.next_commit(live.version, is_sure=False) is not None:
                return None
            live.check_same()
            # This fails if another writer has committed since the caller's last read.
            self._log.create(commit, live.version + 1)
        except (FileExistsError, LogGone) as error:
            log.debug("the append to %s is retried: %s", self._uri, error)
            return None
        if (live.version + 1) % CHECKPOINT_EVERY == 0:
            known = dict(self._log.recent)
            work = partial(_keep_short, self._uri, live.version + 1, known, self._most_commits)
            background.run("checkpoint", work)
        return live.after(commit.actions)


def _keep_short(uri: str, version: int, known: Mapping[int, bytes], most_commits: int) -> None:
    checkpoint(uri, version, known, cleans_up=False)
    try:
        trim_log(uri, version - most_commits)
    except (OSError, DeltaError, LogGone) as error:
        log.warning("could not trim the log of %s: %s", uri, error)


def are_forbidden(changes: Changes, versions: Mapping[str, int | None]) -> bool:
    """Return whether the changes' moves or bounds do not hold for these versions."""
    return any(versions[each.app_id] != each.expected for each in changes.moves) or any(
        (versions[each.app_id] or 0) > each.at_most for each in changes.bounds
    )


def checksum_path(folder: Path, version: int) -> Path:
    """Return the path of a version's checksum in the log's folder."""
    return folder / f"{version:020}.crc"


def write_checksum(table_folder: Path, table: Sizes) -> None:
    """Write the checksum of a table in a local folder.

    A failure is only logged: the commit is valid without it, and the next reader is slower.
    """
    checksum = {
        "tableSizeBytes": table.bytes,
        "numFiles": len(table.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": table.meta_data,
        "protocol": table.protocol,
    }
    folder = table_folder / "_delta_log"
    try:
        os.replace(write_partial(folder, _encode(checksum)), checksum_path(folder, table.version))
        # Only the newest checksum is read, and readers list this folder. The previous one stays for
        # a reader that has already listed it.
        checksum_path(folder, table.version - 2).unlink(missing_ok=True)
    except OSError as error:
        log.warning("could not write checksum %d in %s: %s", table.version, folder, error)
