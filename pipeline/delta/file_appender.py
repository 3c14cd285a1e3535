"""What appends to a plain table have in common, wherever its files lie.

A Parquet file is written, and then the next version's commit, which only one writer can create. No
other file of the table is read, and no rewrite of other files is a conflict.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.actions import add_action, txn_action
from group_coordinator.pipeline.delta.appender import AppendConflict
from group_coordinator.pipeline.delta.commit import Commit, NotFlushed
from group_coordinator.pipeline.delta.freshness import COMMITTABLE_S, Freshness
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.table import ATTEMPTS, back_off

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from group_coordinator.pipeline.delta.data_files import DataFile
    from group_coordinator.pipeline.delta.epoch import Epoch
    from group_coordinator.pipeline.delta.layout import LayOut


log = logging.getLogger(__name__)


class _TooOld(Exception):
    """VACUUM may have deleted the file that is to be committed."""


class FileAppender(ABC):
    """Appends to one plain table; see `pipeline.delta.appender.Appender`.

    `lay_out` says how rows become a file (`pipeline.delta.layout`).

    Raises UnsupportedTable, when it is made and by any append, if the table asks for more than is
    written here (`pipeline.delta.protocol`). An append that raised NotFlushed is the last one: each
    later one raises it, too, also one that only asks whether its transaction is in the log.
    """

    def __init__(self, uri: str, epoch: Epoch | None, flushed: bool, lay_out: LayOut) -> None:
        self._uri = uri
        self._lay_out = lay_out
        self._epoch = epoch
        self._flushed = flushed
        self._not_flushed: NotFlushed | None = None
        self._snapshot = Snapshot(uri)
        self._check_features()

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; see `Appender.append`."""
        if self._not_flushed is not None:
            raise NotFlushed(*self._not_flushed.args)
        while True:
            try:
                return self._append(rows, app_id, version)
            except _TooOld as error:
                log.warning("%s: its rows are written anew", error)

    def _append(self, rows: pa.Table | None, app_id: str | None, version: int) -> bool:
        actions = []
        if app_id is not None:
            if self.last_version(app_id) >= version:
                return False
            actions.append(txn_action(app_id, version))
        begun = Freshness.of_now()
        added = None if rows is None else self._write_file(rows)
        if added is not None:
            actions.append(add_action(added))
        commit = Commit(actions, is_blind_append=True, flushed=self._flushed)
        try:
            written = self._commit(commit, app_id, version, begun)
        except NotFlushed as error:
            self._not_flushed = error
            raise
        finally:
            # While the commit may be in the table its file must stay. VACUUM deletes a file that no
            # commit names.
            if added is not None and not commit.may_stand:
                self._delete_file(added.path)
        if written:
            self._snapshot.advance(added, app_id, version)
            self._follow_up()
        return written

    @abstractmethod
    def write_ahead(self, rows: pa.Table) -> None:
        """Begin to write the rows' file; see `Appender.write_ahead`."""

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        return self._snapshot.last_version(app_id)

    def forget(self) -> None:
        """Read what other writers committed; see `Appender.forget`."""
        self._snapshot.follow()

    def file_paths(self) -> Collection[str] | None:
        """Return the table's files, if they hold its rows; see `TableAppender.file_paths`."""
        return None if self._snapshot.features else self._snapshot.files.keys()

    def _commit(self, commit: Commit, app_id: str | None, version: int, begun: Freshness) -> bool:
        """Create the next commit; False if the application's version was written meanwhile.

        Raises _TooOld if the commit's file was `begun` too long ago.
        """
        for attempt in range(ATTEMPTS):
            if attempt or self._looks_first():
                self._snapshot.follow()
            self._check_features()
            if app_id is not None and self.last_version(app_id) >= version:
                return False
            if self._epoch is not None:
                self._epoch.check(self._uri, self.last_version(self._epoch.app_id))
            commit.expect(self._expected(app_id))
            if not begun.is_within(COMMITTABLE_S):
                raise _TooOld(f"a file of {self._uri} that was not committed for half an hour")
            try:
                self._snapshot.log.create(commit, self._snapshot.version + 1)
            except FileExistsError:
                back_off(attempt)
            else:
                return True
        raise AppendConflict(f"{ATTEMPTS} appends to {self._uri} lost")

    def _expected(self, app_id: str | None) -> dict[str, int | None]:
        """The versions that an append depends on: its application's, and its node's epoch."""
        app_ids = [] if app_id is None else [app_id]
        if self._epoch is not None:
            app_ids.append(self._epoch.app_id)
        versions = {each: self.last_version(each) for each in app_ids}
        return {each: None if version < 0 else version for each, version in versions.items()}

    def _check_features(self) -> None:
        if self._snapshot.features:
            raise UnsupportedTable(self._uri, self._snapshot.features)

    def _looks_first(self) -> bool:
        """Whether to look for the commits of others before the first attempt to commit.

        An attempt that was made on an old version fails, whatever was known when it was made: the
        commit is created under the version after the one that is known.
        """
        return True

    @abstractmethod
    def _write_file(self, rows: pa.Table) -> DataFile:
        """Write the rows, which are of one partition, as a file that is not yet the table's."""

    @abstractmethod
    def _delete_file(self, path: str) -> None:
        """Delete a file that no commit names."""

    @abstractmethod
    def _follow_up(self) -> None:
        """Write what goes with a new version."""
