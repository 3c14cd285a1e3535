"""The tables under a root: their locations, creation, and upgrade to this release's columns.

They have Delta's protocol (1, 2), which every engine reads and writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import (
    Appender,
    ObjectStore,
    TornTable,
    check_store,
    check_whole,
    has_first_commit,
    is_table,
    local_folder,
    open_delta,
    read_rows,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.columns import add_missing_columns, check_format
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    ON_DEMAND,
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    TABLES,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

# The commits between two Delta checkpoints. With Delta's default of 10 there would be one each
# second at 10 commits/s; listing and reading 100 commits costs less.
CHECKPOINT_INTERVAL = "100"
# `delta.logRetentionDuration` of each table: older log files are deleted with a Delta checkpoint,
# because every reader lists the log. It also limits time travel. `requests`: 30 days, so that no
# request is lost while no coordinator runs; a running one trims what it has read
# (`pipeline.delta.log_trim`). `topics`, `acls`: 30 days, so that a follower that does not poll for
# days misses no change. `coordinators`: 10 minutes, because leases fill the log, and nothing
# follows it.
LOG_RETENTION = {
    "requests": "interval 30 days",
    "topics": "interval 30 days",
    "acls": "interval 30 days",
    "coordinators": "interval 10 minutes",
}
DEFAULT_LOG_RETENTION = "interval 1 hours"
# How long a table's log names a removed file, and VACUUM keeps it. With Delta's default of a week,
# each Delta checkpoint would have 6,000,000 names at 10 files/s.
REMOVED_RETENTION = "delta.deletedFileRetentionDuration"
# How long `requests` retains a transaction identifier. Each producer has its own, and each Delta
# checkpoint has them all. A producer checks an append for minutes; a streaming query that writes
# requests may be down for days. The other tables have few identifiers and retain them for ever.
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_WRITERS_KNOWN = "interval 7 days"


def retention_properties(name: str, removed_hours: int) -> dict[str, str]:
    """Return the Delta properties that limit what a table's log retains.

    Removed files are retained for `removed_hours`.
    """
    properties = {REMOVED_RETENTION: f"interval {removed_hours} hours"}
    if name == REQUESTS.name:
        properties[TRANSACTION_RETENTION] = _WRITERS_KNOWN
    return properties


# The shortest interval between two polls of topics and ACLs in an object store, s.
STORE_LOOK_S = 2.0

# The tables that a coordinator writes, in the order of writing a batch.
WRITTEN = (OFFSETS_TOPIC, GROUP_EVENTS, REJECTED_REQUESTS, RESPONSES)


class TableMissing(Failure):
    """A table that existed under the root and is missing; the message says what to do."""


class TornRoot(Failure):
    """A table that cannot be read because of torn files, as after a loss of power."""


def table_uri(root: str, table: Table) -> str:
    """Return the URI of the table under the root."""
    return f"{root.rstrip('/')}/{table.name}"


def ensure_tables(root: str, tables: Iterable[Table] = TABLES.values()) -> None:
    """Create missing tables, and add missing columns of this release.

    Tables of `ON_DEMAND` are not created: without `topics`, for example, every topic name is
    accepted. Raises what `ensure_table` raises, TornRoot for a table that cannot be read after a
    loss of power, and TableMissing.
    """
    _check_offsets_topic(root)
    for table in tables:
        check_whole_table(root, table)
        ensure_table(root, table)
    for table in ON_DEMAND:
        if has_table(root, table):
            ensure_table(root, table)


def _check_offsets_topic(root: str) -> None:
    """Raise TableMissing if coordinators have run and the offsets topic is missing.

    A coordinator would start without groups, and all consumers would lose their offsets.
    """
    if has_table(root, OFFSETS_TOPIC) or not has_table(root, COORDINATORS):
        return
    # Checked again, because a folder may have been unavailable for a moment.
    if read_table(root, COORDINATORS).num_rows and not has_table(root, OFFSETS_TOPIC):
        raise TableMissing(
            f"coordinators have run on {root}, but {table_uri(root, OFFSETS_TOPIC)}, which has all "
            "groups and offsets, cannot be found: restore it, or use another root"
        )


def check_release(root: str) -> None:
    """Raise LaterRelease if this release does not know the format of one of the root's tables.

    A table that cannot be opened is skipped: the code that reads it reports the error.
    """
    for table in (*TABLES.values(), *ON_DEMAND):
        if not has_table(root, table):
            continue
        try:
            handle = open_table(root, table)
        except DeltaError:
            continue
        check_format(handle, table)


def has_root(root: str) -> bool:
    """Return whether the root exists: a local folder, or in an object store at least one table.

    Commands that create something check this first, so that they do not create a mistyped root.
    """
    folder = local_folder(root)
    if folder is not None:
        return folder.exists()
    return any(has_table(root, table) for table in (*TABLES.values(), *ON_DEMAND))


def has_table(root: str, table: Table) -> bool:
    """Return whether the table exists under the root."""
    return is_table(table_uri(root, table))


class Looks:
    """A limit on how often a follower polls a table with few changes.

    In an object store, where each poll is a request, one is allowed every `STORE_LOOK_S`. For a
    local root there is no limit.
    """

    def __init__(self, root: str) -> None:
        self._interval_s = 0.0 if local_folder(root) is not None else STORE_LOOK_S
        self._due_at = 0.0

    def is_due(self) -> bool:
        """Return whether a poll is allowed now; if so, the next interval begins."""
        now = monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + self._interval_s
        return True


class Absent:
    """A repeated check whether a table exists; in a store each but the first is one request."""

    def __init__(self, root: str, table: Table) -> None:
        self._root, self._table = root, table
        self._first: ObjectStore | None = None

    def is_there(self) -> bool:
        """Return whether the table exists."""
        if self._first is not None:
            # It did not exist at the first check, so if it exists now, it has version 0.
            return has_first_commit(self._first)
        if has_table(self._root, self._table):
            return True
        uri = table_uri(self._root, self._table)
        if local_folder(uri) is None:
            self._first = ObjectStore(uri)
        return False


def check_whole_table(root: str, table: Table) -> None:
    """Raise TornRoot if the table exists and cannot be read after a loss of power."""
    folder = local_folder(table_uri(root, table))
    if folder is None or not (folder / "_delta_log").exists():
        return
    try:
        check_whole(folder)
    except TornTable as error:
        raise TornRoot(
            f"{error}; `group-coordinator repair --root {root}` shows what can be done"
        ) from error


def ensure_table(root: str, table: Table) -> DeltaTable:
    """Open the table; create it if it is missing, and add missing columns of this release.

    Raises SchemaMismatch for a table with other columns. Raises LaterRelease for a table that a
    later release has changed so that this one cannot use it. Raises UnfitStore before it creates a
    table in a store without compare-and-set, in which two writers could commit the same version.
    """
    uri = table_uri(root, table)
    if not is_table(uri):
        check_store(root.rstrip("/"))
        retention = LOG_RETENTION.get(table.name, DEFAULT_LOG_RETENTION)
        DeltaTable.create(
            uri,
            table.schema,
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration={
                "delta.checkpointInterval": CHECKPOINT_INTERVAL,
                "delta.logRetentionDuration": retention,
                **retention_properties(table.name, UpkeepSettings().vacuum_retention_hours),
            },
        )
    handle = open_delta(uri)
    add_missing_columns(handle, table)
    return handle


def read_table(root: str, table: Table) -> pa.Table:
    """Return all rows of a table. Raises deltalake's TableNotFoundError and DeltaError, OSError."""
    return read_rows(open_table(root, table))


def last_written(root: str, query_id: str) -> int:
    """Return the newest batch of a streaming query in the tables `WRITTEN`, -1 if there is none."""
    versions = [open_table(root, table).transaction_version(query_id) for table in WRITTEN]
    return max(-1 if version is None else version for version in versions)


def open_table(root: str, table: Table) -> DeltaTable:
    """Open an existing table; raises deltalake's TableNotFoundError."""
    return open_delta(table_uri(root, table))


def set_mark(root: str, table: Table, mark: str) -> None:
    """Note in a table, for ever, that another table was created.

    A mark is the transaction identifier `mark` with version 1. It distinguishes a lost table from
    one that was never created.
    """
    Appender(table_uri(root, table)).append(None, mark, 1)


def has_mark(root: str, table: Table, mark: str) -> bool:
    """Return whether the table exists and has the mark."""
    return has_table(root, table) and (
        open_table(root, table).transaction_version(mark) is not None
    )
