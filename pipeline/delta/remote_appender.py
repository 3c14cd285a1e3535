"""Appending to a table that is not in a local folder: delta-rs commits."""

from __future__ import annotations

import logging
import uuid

import pyarrow as pa
from deltalake import Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import AppendConflict
from group_coordinator.pipeline.delta.data_files import row_group_rows
from group_coordinator.pipeline.delta.epoch import Epoch
from group_coordinator.pipeline.delta.protocol import UnsupportedTable, writer_features
from group_coordinator.pipeline.delta.remote_commit import RemoteCommit
from group_coordinator.pipeline.delta.table import ATTEMPTS, back_off, open_delta, refresh

log = logging.getLogger(__name__)

# What delta-rs says of a table with features that it does not implement.
_UNSUPPORTED = "Unsupported table features"


class RemoteAppender:
    """Appends through delta-rs, which records a transaction but does not skip its repetition."""

    def __init__(self, uri: str, epoch: Epoch | None = None) -> None:
        self._handle = open_delta(uri)
        self._epoch = epoch
        self._last: dict[str, int] = {}
        # Whether the handle may lack a commit of ours, whose outcome is not known.
        self._stale = False
        # The application of appends that have none, and its versions so far.
        self._own_id = f"append-{uuid.uuid4()}"
        self._own_version = 0

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; see `Appender.append`."""
        if app_id is None:
            # delta-rs repeats a commit whose answer was lost. Only a transaction keeps it from
            # committing the same file again as the next version.
            app_id, version = self._own_id, self._own_version
            self._own_version += 1
        transactions = [Transaction(app_id, version, clock_ms())]
        if self._epoch is not None:
            # Every commit repeats the epoch: a later epoch that is committed meanwhile is then a
            # conflict of transactions, which makes delta-rs refuse this commit.
            transactions.append(Transaction(self._epoch.app_id, self._epoch.number, clock_ms()))
        if rows is None:
            rows = pa.schema(self._handle.schema().to_arrow()).empty_table()
        for attempt in range(ATTEMPTS):
            if self.last_version(app_id) >= version:
                return False
            if self._epoch is not None:
                self._epoch.check(self._handle.table_uri, self.last_version(self._epoch.app_id))
            commit = RemoteCommit(self._handle, transactions)
            try:
                write_deltalake(
                    self._handle,
                    rows,
                    mode="append",
                    commit_properties=commit.properties,
                    writer_properties=WriterProperties(
                        compression="SNAPPY", max_row_group_size=row_group_rows(rows)
                    ),
                )
            except (DeltaError, OSError) as error:
                log.info("append to %s: %s", self._handle.table_uri, error)
                self._stale = True
                stands = commit.stands(error)
                self.forget()
                if stands:
                    return True
                if _UNSUPPORTED in str(error):
                    features = writer_features(self._handle)
                    raise UnsupportedTable(self._handle.table_uri, features) from error
                # An append of delta-rs is not blind: a rewrite that was committed meanwhile fails
                # it, and the next attempt succeeds.
                if not isinstance(error, CommitFailedError):
                    raise
                back_off(attempt)
            else:
                self._last[app_id] = version
                return True
        raise AppendConflict(f"{ATTEMPTS} appends to {self._handle.table_uri} lost")

    def write_ahead(self, rows: pa.Table) -> None:
        """Do nothing: the append writes the file; see `Appender.write_ahead`."""

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        if self._stale:
            self.forget()
        if app_id not in self._last:
            version = self._handle.transaction_version(app_id)
            self._last[app_id] = -1 if version is None else version
        return self._last[app_id]

    def forget(self) -> None:
        """Read what other writers committed; see `Appender.forget`."""
        self._last.clear()
        refresh(self._handle)
        self._stale = False

    def file_paths(self) -> None:
        """Return None; see `TableAppender.file_paths`."""
        return
