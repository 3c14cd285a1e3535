"""Appending to a table: one Parquet file and one commit, at most once for a (query, batch).

Two ways to the same table. On a local disk a commit is written here, as Delta's protocol describes
an append: a file in the table's folder, then `<version>.json`, which only one writer can create. It
takes 2 to 4 ms whatever the table's size, and nothing that rewrites other files is in its way.
Elsewhere delta-rs commits: it knows every store's way to create a file once, and its commit takes
0.2 ms longer with every file in the table, 85 ms at 450 files.

Beside its commit the local way leaves Delta's version checksum, `<version>.crc`. A Spark that reads
the table without one gets protocol and metadata by a query over the log whenever there is a new
version, which takes it 110 to 170 ms; with it, 20.

A commit outlives the process, killed at any instant. It is not forced to the disk: a machine that
loses its power may lose the latest ones, as a Kafka broker with its default settings may.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipeline.clock import clock_ms
from pipeline.delta.checkpoint import checkpoint
from pipeline.delta.data_files import DataFile
from pipeline.delta.epoch import Epoch, FencedError, check_epoch
from pipeline.delta.log import (
    Action,
    LogGone,
    add_action,
    commit_info,
    commit_path,
    create,
    encode_commit,
    next_commit,
    txn_action,
    write_partial,
)
from pipeline.delta.table import ATTEMPTS, back_off, has_features, local_folder, open_delta, refresh
from pipeline.errors import Failure

log = logging.getLogger(__name__)

# After so many commits a checkpoint may be due.
CHECKPOINT_EVERY = 100


class AppendConflict(Failure):
    """An append that lost against other writers `ATTEMPTS` times."""


class Appender(Protocol):
    """Appends to one table."""

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; False if the application wrote this version, or a later one.

        No rows: the commit says only that the application has come to this version. Raises
        AppendConflict when other writers win every attempt, FencedError when the appender has an
        epoch and the table has a later one.
        """
        ...

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        ...

    def forget(self) -> None:
        """Read the table anew before the next append: somebody wrote to it in our name."""
        ...


def open_appender(uri: str, epoch: Epoch | None = None) -> Appender:
    """Return the appender for an existing table; raises deltalake's TableNotFoundError.

    With an `epoch` it writes only while the table knows of no later one of that node's
    (`raise_epoch`).
    """
    folder = local_folder(uri)
    return RemoteAppender(uri, epoch) if folder is None else LocalAppender(folder, epoch)


def raise_epoch(uri: str, epoch: Epoch) -> None:
    """Fence off every earlier start of a node: the table takes nothing of theirs any more.

    It is one commit of Delta's own, so the order of commits decides: what an earlier coordinator
    committed before it stands, what comes after it is refused. Raises FencedError if the table
    knows a later epoch.
    """
    appender = open_appender(uri)
    if not appender.append(None, epoch.app_id, epoch.number):
        latest = appender.last_version(epoch.app_id)
        if latest > epoch.number:
            raise FencedError(uri, epoch, latest)


# --- elsewhere ----------------------------------------------------------------------------------


class RemoteAppender:
    """Commits through delta-rs, which records a transaction but does not skip its repetition."""

    def __init__(self, uri: str, epoch: Epoch | None = None) -> None:
        self._handle = open_delta(uri)
        self._epoch = epoch
        self._last: dict[str, int] = {}

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; see `Appender.append`."""
        transactions = [] if app_id is None else [Transaction(app_id, version, clock_ms())]
        if self._epoch is not None:
            # Said again with every commit, a later epoch that is committed beside one conflicts.
            transactions.append(Transaction(self._epoch.app_id, self._epoch.number, clock_ms()))
        if rows is None:
            rows = pa.schema(self._handle.schema().to_arrow()).empty_table()
        for attempt in range(ATTEMPTS):
            if app_id is not None and self.last_version(app_id) >= version:
                return False
            check_epoch(self, self._handle.table_uri, self._epoch)
            try:
                properties = CommitProperties(app_transactions=transactions)
                write_deltalake(self._handle, rows, mode="append", commit_properties=properties)
            except CommitFailedError as error:
                # delta-rs' appends are not blind: a compaction beside one fails it.
                log.info("append to %s: %s", self._handle.table_uri, error)
                back_off(attempt)
                self.forget()
            else:
                if app_id is not None:
                    self._last[app_id] = version
                return True
        raise AppendConflict(f"{ATTEMPTS} appends to {self._handle.table_uri} lost")

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        if app_id not in self._last:
            version = self._handle.transaction_version(app_id)
            self._last[app_id] = -1 if version is None else version
        return self._last[app_id]

    def forget(self) -> None:
        """Take in what was written in our name."""
        self._last.clear()
        refresh(self._handle)


# --- on a local disk ----------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def _needs_load(action: Action) -> bool:
    """Whether what an action does to a table's size or description cannot be told from it."""
    size_unknown = action.remove is not None and action.remove.size is None
    return size_unknown or action.meta_data is not None or action.protocol is not None


class LocalAppender:
    """Commits to a table in a local folder."""

    def __init__(self, folder: Path, epoch: Epoch | None = None) -> None:
        self._folder = folder
        self._log = folder / "_delta_log"
        self._epoch = epoch
        self._load()

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; see `Appender.append`."""
        actions = [commit_info(is_append=True)]
        if app_id is not None:
            if self.last_version(app_id) >= version:
                return False
            actions.append(txn_action(app_id, version))
        added = None if rows is None else self._write_file(rows)
        if added is not None:
            actions.append(add_action(added))
        written = False
        try:
            written = self._commit(encode_commit(actions), app_id, version)
        finally:
            if added is not None and not written:
                (self._folder / added.path).unlink(missing_ok=True)
        if written:
            self._committed(added)
            if app_id is not None:
                self._transactions[app_id] = version
        return written

    def _commit(self, content: bytes, app_id: str | None, version: int) -> bool:
        """Create the next commit; False if the application's version is there meanwhile."""
        for attempt in range(ATTEMPTS):
            self._follow()
            if app_id is not None and self.last_version(app_id) >= version:
                return False
            check_epoch(self, str(self._folder), self._epoch)
            try:
                create(commit_path(self._log, self._version + 1), content)
            except FileExistsError:
                back_off(attempt)
            else:
                return True
        raise AppendConflict(f"{ATTEMPTS} appends to {self._folder} lost")

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        if app_id not in self._transactions:
            version = open_delta(str(self._folder)).transaction_version(app_id)
            self._transactions[app_id] = -1 if version is None else version
        return self._transactions[app_id]

    def forget(self) -> None:
        """Take in what was written in our name."""
        self._follow()

    # --- where the table is -----------------------------------------------------------------------

    def _load(self) -> None:
        """Read the table's present version, its size, and what a checksum repeats."""
        handle = open_delta(str(self._folder))
        metadata, protocol = handle.metadata(), handle.protocol()
        files = pa.table(handle.get_add_actions(flatten=True))
        self._version = handle.version()
        self._files = files.num_rows
        self._bytes = sum(files.column("size_bytes").to_pylist())
        self._transactions: dict[str, int] = {}
        self._partition_by: list[str] = list(metadata.partition_columns)
        # The checksum of a table with features would have to hold more than ours does.
        self._plain = not has_features(handle)
        self._described = {
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": {
                "id": str(metadata.id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": handle.schema().to_json(),
                "partitionColumns": self._partition_by,
                "configuration": metadata.configuration,
                "createdTime": metadata.created_time,
            },
            "protocol": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
            },
        }

    def _follow(self) -> None:
        """Take in what others committed since."""
        while True:
            try:
                actions = next_commit(self._log, self._version)
            except LogGone:
                self._load()
                continue
            if actions is None:
                return
            if any(_needs_load(each) for each in actions):
                self._load()
                continue
            self._version += 1
            for action in actions:
                if action.add is not None:
                    self._count(1, action.add.size)
                if action.remove is not None:
                    self._count(-1, action.remove.size)
                # Of others, who may be very many, the table knows.
                if action.txn is not None and action.txn.app_id in self._transactions:
                    self._transactions[action.txn.app_id] = action.txn.version

    def _count(self, change: int, size: int | None) -> None:
        self._files += change
        self._bytes += change * (size or 0)

    # --- writing ----------------------------------------------------------------------------------

    def _write_file(self, rows: pa.Table) -> DataFile:
        """Write the rows, which are of one partition, as a file that is not yet the table's."""
        values = {name: str(rows.column(name)[0].as_py()) for name in self._partition_by}
        folder = "".join(f"{name}={value}/" for name, value in values.items())
        path = f"{folder}part-{uuid.uuid4()}.snappy.parquet"
        target = self._folder / path
        if folder:
            target.parent.mkdir(exist_ok=True)
        pq.write_table(rows.drop_columns(self._partition_by), target, store_schema=False)
        status = target.stat()
        modified_ms = status.st_mtime_ns // 1_000_000
        return DataFile(path, status.st_size, modified_ms, rows.num_rows, values)

    def _committed(self, added: DataFile | None) -> None:
        self._version += 1
        if added is not None:
            self._count(1, added.size)
        if self._plain:
            self._leave_checksum()
        # A process that is past its end has no time for one.
        if self._version % CHECKPOINT_EVERY == 0 and threading.main_thread().is_alive():
            # Not as a daemon: the process that ends waits for it, or would end within delta-rs, by
            # a segmentation fault.
            threading.Thread(
                target=checkpoint, args=(self._folder, self._version), name="checkpoint"
            ).start()

    def _leave_checksum(self) -> None:
        checksum = {"tableSizeBytes": self._bytes, "numFiles": self._files, **self._described}
        target = self._log / f"{self._version:020}.crc"
        try:
            os.replace(write_partial(self._log, _encode(checksum)), target)
            # Only the newest is read, and every reader lists this folder.
            (self._log / f"{self._version - 2:020}.crc").unlink(missing_ok=True)
        except OSError as error:
            # The commit stands; without the checksum the next reader is slower.
            log.warning("no checksum for version %d of %s: %s", self._version, self._folder, error)
