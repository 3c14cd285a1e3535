"""The one way to write a table: a commit that only one writer can create.

No file of the table is read, and a commit of others is no conflict unless it touched what this one
depends on. So a commit takes as long in a table of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.actions import parse_commit
from group_coordinator.pipeline.delta.checkpoint import CHECKPOINT_EVERY, CLEAN_UP_S, checkpoint
from group_coordinator.pipeline.delta.checksum import write_checksum
from group_coordinator.pipeline.delta.commit import COMMITTABLE_S, Commit
from group_coordinator.pipeline.delta.protocol import APPEND_ONLY, check_writable
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.store import NotFlushed
from group_coordinator.pipeline.delta.table import ATTEMPTS, back_off, local_folder
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.clock import Freshness
    from group_coordinator.pipeline.delta.commit import Changes


class AppendConflict(Failure):
    """A commit that lost against other writers `ATTEMPTS` times; it is not in the table."""


class RewriteConflict(Failure):
    """Another process rewrote the table meanwhile; this commit is not in the table."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f"{table} was rewritten by another process meanwhile: {why}")


class TooOld(Exception):
    """VACUUM may have deleted a file that is to be committed: its rows are to be written anew."""


class Writer:
    """Commits to one table; for one thread.

    With `flushed` a commit to a disk outlives a loss of power once it is told. `may_stand`: whether
    the last commit may be in the table, so that its files must stay.

    Raises deltalake's TableNotFoundError.
    """

    def __init__(self, uri: str, flushed: bool) -> None:
        self.uri = uri
        self.snapshot = Snapshot(uri)
        self.may_stand = False
        self._flushed = flushed
        self._not_flushed: NotFlushed | None = None
        self._described = self.snapshot.described
        self._cleans_up_at = monotonic() + CLEAN_UP_S

    def check_flushed(self) -> None:
        """Raise NotFlushed if a commit did: then the table takes no more of this writer."""
        if self._not_flushed is not None:
            raise NotFlushed(*self._not_flushed.args)

    def commit(
        self, changes: Changes, begun: Freshness | None = None
    ) -> int | Mapping[str, int | None]:
        """Commit after all others' commits; return the version.

        Returns instead the versions of the changes' identifiers if these forbid the commit, which
        is then not in the table. Files that were `begun` half an hour ago are not committed.

        Raises AppendConflict, RewriteConflict if a file to be removed is gone or the table was
        described anew, TooOld, UnsupportedTable, CommitStateUnknown where the commit may be in the
        table or not, NotFlushed from then on where a loss of power may undo it, and OSError.
        """
        self.may_stand = False
        self.check_flushed()
        for attempt in range(ATTEMPTS):
            # Where each look is a request, an attempt is made on what is known: it fails if that is
            # old, since its version is taken then.
            if attempt or not self.snapshot.log.knows_end:
                self.snapshot.follow()
            found = self.snapshot.versions(changes.app_ids)
            if changes.are_forbidden(found):
                return found
            self._check(changes)
            if begun is not None and not begun.is_within(COMMITTABLE_S):
                raise TooOld(f"a file of {self.uri} that was not committed for half an hour")
            commit = Commit(changes.actions(), not changes.remove, self._flushed, found)
            version = self.snapshot.state.version + 1
            try:
                self.snapshot.log.create(commit, version)
            except FileExistsError:
                back_off(attempt)
                continue
            except NotFlushed as error:
                self._not_flushed = error
                raise
            finally:
                self.may_stand = commit.may_stand
            self.snapshot.advance(parse_commit(commit.content))
            self._follow_up()
            return version
        raise AppendConflict(f"{ATTEMPTS} commits to {self.uri} lost against other writers")

    def _check(self, changes: Changes) -> None:
        """Raise what forbids the changes besides identifiers."""
        if not changes.remove:
            check_writable(self.uri, self.snapshot.features)
            return
        features = set(self.snapshot.features)
        if changes.data_change and self.snapshot.is_append_only:
            features.add(APPEND_ONLY)
        check_writable(self.uri, features, bool(changes.add) and changes.data_change)
        if self.snapshot.described != self._described:
            raise RewriteConflict(self.uri, "its description was changed")
        for file in changes.remove:
            if file.path not in self.snapshot.state.files:
                raise RewriteConflict(self.uri, f"{file.path} was removed")
            if quote(file.path, safe="/=") != file.path:
                raise Failure(f"{self.uri}: {file.path} is named so that its log encodes the name")

    def _follow_up(self) -> None:
        """Write what goes with a new version: its checksum, and now and then a checkpoint."""
        log, state = self.snapshot.log, self.snapshot.state
        if (folder := local_folder(self.uri)) is not None:
            write_checksum(folder, state)
        if state.version % CHECKPOINT_EVERY == 0:
            cleans_up = monotonic() >= self._cleans_up_at
            if cleans_up:
                self._cleans_up_at = monotonic() + CLEAN_UP_S
            work = partial(checkpoint, self.uri, state.version, dict(log.recent), cleans_up)
            background.run("checkpoint", work)
