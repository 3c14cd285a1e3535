"""Tables through delta-rs: create, open, check, append once.

delta-rs commits a small batch in milliseconds where Spark's writer needs half a second, and writes
the same table: both record (application, version) in Delta's own `txn` action, so a batch written by
one is recognised by the other. Tables stay at protocol (1, 2), the newest both can read and write.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake import write_deltalake as write_delta
from deltalake.exceptions import CommitFailedError

from pipeline.checksum import ChecksumWriter
from schemas.tables import REQUESTS, TABLES, Table, to_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schemas.messages import RequestEvent

log = logging.getLogger(__name__)

APPEND_ATTEMPTS = 10
# Delta's default interval of 10 would write a Parquet checkpoint every second at ten commits a
# second; listing and reading a hundred small JSON files costs less than that.
CHECKPOINT_INTERVAL = "100"
# Log files older than this go whenever a checkpoint is written. Every reader of a table lists its
# log folder, so a log of days makes every batch slow. It bounds how long a coordinator may be down
# without missing a request, and how far back time travel reaches.
LOG_RETENTION = {"requests": "interval 1 days"}
DEFAULT_LOG_RETENTION = "interval 1 hours"


class SchemaMismatch(RuntimeError):
    """An existing table does not have the columns of the contract; the message names them."""


class AppendConflict(RuntimeError):
    """An append that lost against other writers `APPEND_ATTEMPTS` times."""


def table_uri(root: str, table: Table) -> str:
    """Return where the table lies under the root."""
    return f"{root.rstrip('/')}/{table.name}"


def ensure_tables(root: str, tables: Iterable[Table] = TABLES.values()) -> None:
    """Create the tables that are missing; raises SchemaMismatch for one that differs."""
    for table in tables:
        ensure_table(root, table)


def ensure_table(root: str, table: Table) -> DeltaTable:
    """Open the table, creating it if it is missing; raises SchemaMismatch if it differs."""
    uri = table_uri(root, table)
    if not DeltaTable.is_deltatable(uri):
        retention = LOG_RETENTION.get(table.name, DEFAULT_LOG_RETENTION)
        DeltaTable.create(
            uri,
            table.schema,
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration={
                "delta.checkpointInterval": CHECKPOINT_INTERVAL,
                "delta.logRetentionDuration": retention,
            },
        )
    handle = DeltaTable(uri)
    check_schema(handle, table)
    return handle


def open_table(root: str, table: Table) -> DeltaTable:
    """Open an existing table; raises deltalake's TableNotFoundError."""
    return DeltaTable(table_uri(root, table))


def check_schema(handle: DeltaTable, table: Table) -> None:
    """Raise SchemaMismatch, naming each differing column, unless the table has our columns.

    Columns of others beside ours are left alone: what is appended has them null.
    """
    found = {field.name: field.type for field in pa.schema(handle.schema().to_arrow())}
    problems = []
    for field in table.schema:
        actual = found.get(field.name)
        if actual is None:
            problems.append(f"column {field.name} is missing")
        elif plain(actual) != plain(field.type):
            problems.append(f"column {field.name} is {plain(actual)}, not {plain(field.type)}")
    partitioned = tuple(handle.metadata().partition_columns)
    if partitioned != table.partition_by:
        problems.append(f"it is partitioned by {partitioned}, not {table.partition_by}")
    if problems:
        raise SchemaMismatch(
            f"the table at {handle.table_uri} is not a {table.name} table: {'; '.join(problems)}. "
            "Move it away, or choose another root."
        )


def plain(type_: pa.DataType) -> str:
    """Write a type in full, without Arrow's nullability and item names, which engines choose."""
    if pa.types.is_struct(type_):
        return "struct<" + ", ".join(f"{f.name}: {plain(f.type)}" for f in type_) + ">"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"array<{plain(type_.value_type)}>"
    return {"string_view": "string", "binary_view": "binary"}.get(str(type_), str(type_))


class Appender:
    """Appends to one table, each (app_id, version) at most once.

    Needs no check before a write in the ordinary run: one writer per application, and its versions
    rise. The table is asked at the start, and again when a commit did not return cleanly.
    """

    def __init__(self, root: str, table: Table) -> None:
        self.table = table
        self.handle = open_table(root, table)
        self._last: dict[str, int] = {}

    def last_version(self, app_id: str) -> int:
        """Return the last version written for the application, -1 if none was."""
        if app_id not in self._last:
            self.handle.update_incremental()
            version = self.handle.transaction_version(app_id)
            self._last[app_id] = -1 if version is None else version
        return self._last[app_id]

    def forget(self) -> None:
        """Ask the table again: somebody else wrote to it in our name."""
        self._last.clear()

    def append(self, rows: pa.Table, app_id: str, version: int) -> bool:
        """Append in one commit; False if this version, or a later one, is already there.

        Raises AppendConflict when other writers win every attempt.
        """
        if self.last_version(app_id) >= version:
            return False
        properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
        if not self._commit(rows, properties, app_id, version):
            return False
        self._last[app_id] = version
        return True

    def _commit(
        self, rows: pa.Table, properties: CommitProperties, app_id: str, version: int
    ) -> bool:
        for attempt in range(APPEND_ATTEMPTS):
            try:
                write_delta(
                    self.handle,
                    rows,
                    mode="append",
                    commit_properties=properties,
                    post_commithook_properties=PostCommitHookProperties(),
                )
                return True
            except CommitFailedError as error:
                # A compaction that removed files fails any append beside it; the next attempt
                # starts from the table as it is now.
                log.info("append to %s, attempt %d: %s", self.table.name, attempt + 1, error)
                _back_off(attempt)
                self.forget()
                if self.last_version(app_id) >= version:
                    return False
        raise AppendConflict(
            f"{APPEND_ATTEMPTS} appends to {self.table.name} lost against other writers"
        )


class RequestLog:
    """Appends request events to the `requests` table, each call one commit."""

    def __init__(self, root: str) -> None:
        self.handle = ensure_table(root, REQUESTS)
        self._checksum = ChecksumWriter(self.handle)

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the events, in their order; raises AppendConflict, and deltalake's DeltaError."""
        rows = to_requests(requests)
        for attempt in range(APPEND_ATTEMPTS):
            try:
                write_delta(self.handle, rows, mode="append")
            except CommitFailedError as error:
                log.info("append to requests, attempt %d: %s", attempt + 1, error)
                _back_off(attempt)
                self.handle.update_incremental()
            else:
                self._checksum.write()
                return
        raise AppendConflict(f"{APPEND_ATTEMPTS} appends to requests lost against other writers")


def _back_off(attempt: int) -> None:
    time.sleep(random.uniform(0, 0.01 * 2**attempt))
