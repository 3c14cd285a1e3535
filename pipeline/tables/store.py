"""The tables under a root: where they lie, created if missing, brought up to date if not.

The tables stay at Delta's protocol (1, 2), which every engine reads and writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.log import commit_name, is_table
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.parquet_file import read_rows
from group_coordinator.pipeline.delta.store_check import check_store
from group_coordinator.pipeline.delta.table import local_folder, open_delta
from group_coordinator.pipeline.delta.torn import TornTable, check_whole
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.columns import add_missing_columns, check_format
from group_coordinator.pipeline.upkeep_settings import UpkeepSettings
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

# Commits between two Delta checkpoints of Spark or delta-rs. Delta's default of 10 would write one
# every second at ten commits a second; listing and reading a hundred commits costs less.
CHECKPOINT_INTERVAL = "100"
# `delta.logRetentionDuration` of each table: older log files are deleted whenever a Delta
# checkpoint is written, because every reader of a table lists its log folder. Time travel reaches
# as far back. `requests`: 30 days, so that no request is lost while no coordinator runs; while one
# runs, it trims the log by what it has consumed (`pipeline.delta.log_trim`). `topics`: 30 days, so
# that a follower that sleeps misses no change. `coordinators`: leases fill the log, and nobody
# follows it.
LOG_RETENTION = {
    "requests": "interval 30 days",
    "topics": "interval 30 days",
    "acls": "interval 30 days",
    "coordinators": "interval 10 minutes",
}
DEFAULT_LOG_RETENTION = "interval 1 hours"
# How long a table's log names a file that was removed; VACUUM keeps the file as long. Delta's
# default of a week would be 6,000,000 names at ten files a second, in every Delta checkpoint.
REMOVED_RETENTION = "delta.deletedFileRetentionDuration"
# How long `requests` records a transaction identifier. Each producer has its own, and every Delta
# checkpoint names them all. A producer asks for minutes whether its append is in; a streaming query
# that writes requests may be down for days after its last append. The other tables keep their few
# for good.
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_WRITERS_KNOWN = "interval 7 days"


def retention_properties(name: str, removed_hours: int) -> dict[str, str]:
    """Return the properties that bound what a table remembers; removed files: `removed_hours`."""
    properties = {REMOVED_RETENTION: f"interval {removed_hours} hours"}
    if name == REQUESTS.name:
        properties[TRANSACTION_RETENTION] = _WRITERS_KNOWN
    return properties


# How often the catalogue of topics and the ACLs of a root in a store are looked at, s.
STORE_LOOK_S = 2.0

# The tables that a coordinator writes, in the order in which it writes a batch.
WRITTEN = (OFFSETS_TOPIC, GROUP_EVENTS, REJECTED_REQUESTS, RESPONSES)


class TableMissing(Failure):
    """A table that the root had cannot be found; the message says what to do."""


class TornRoot(Failure):
    """A table of the root cannot be read because of torn files, as after a loss of power."""


def table_uri(root: str, table: Table) -> str:
    """Return where the table lies under the root."""
    return f"{root.rstrip('/')}/{table.name}"


def ensure_tables(root: str, tables: Iterable[Table] = TABLES.values()) -> None:
    """Create the tables that are missing, and add this release's columns to those that lack them.

    Tables that are made on demand are not created: without `topics` any topic's name is accepted.

    Raises SchemaMismatch and LaterRelease as `ensure_table` does, TornRoot for a table that cannot
    be read after a loss of power, TableMissing.
    """
    _check_offsets_topic(root)
    for table in tables:
        check_whole_table(root, table)
        ensure_table(root, table)
    for table in ON_DEMAND:
        if has_table(root, table):
            ensure_table(root, table)


def _check_offsets_topic(root: str) -> None:
    """Raise TableMissing if coordinators have run and what they recorded is gone.

    A coordinator would start without groups or offsets, and every consumer begin anew.
    """
    if has_table(root, OFFSETS_TOPIC) or not has_table(root, COORDINATORS):
        return
    # The second look is for a folder that was away for one read.
    if read_table(root, COORDINATORS).num_rows and not has_table(root, OFFSETS_TOPIC):
        raise TableMissing(
            f"coordinators have run on {root}, and {table_uri(root, OFFSETS_TOPIC)}, which has all "
            "groups and offsets, cannot be found: bring it back, or begin anew with another root"
        )


def check_release(root: str) -> None:
    """Raise LaterRelease if one of the root's tables says that a later release keeps it to itself.

    A table that cannot be opened is passed over: whoever reads it says why.
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
    """Return whether there is the folder; other stores have no folders, so there it needs a table.

    Whoever creates something under a root asks first: a root that was mistyped would be made.
    """
    folder = local_folder(root)
    if folder is not None:
        return folder.exists()
    return any(has_table(root, table) for table in (*TABLES.values(), *ON_DEMAND))


def has_table(root: str, table: Table) -> bool:
    """Return whether the table exists under the root."""
    uri = table_uri(root, table)
    folder = local_folder(uri)
    # delta-rs takes far longer to look.
    if folder is not None and not (folder / "_delta_log").exists():
        return False
    return is_table(uri)


class Looks:
    """When a follower of a table that few change may look again: in a store each look is a request.

    `is_due` takes the look that it allows.
    """

    def __init__(self, root: str) -> None:
        self._interval_s = 0.0 if local_folder(root) is not None else STORE_LOOK_S
        self._due_at = 0.0

    def is_due(self) -> bool:
        """Whether to look now."""
        now = monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + self._interval_s
        return True


class Absent:
    """Tells whether a table that may be missing is there by now; in a store by one request."""

    def __init__(self, root: str, table: Table) -> None:
        self._root, self._table = root, table
        self._first: ObjectStore | None = None

    def is_there(self) -> bool:
        """Whether the table is there."""
        if self._first is not None:
            # It was not there, so it is there from its first version on.
            return self._first.read(f"_delta_log/{commit_name(0)}") is not None
        if has_table(self._root, self._table):
            return True
        uri = table_uri(self._root, self._table)
        if local_folder(uri) is None:
            self._first = ObjectStore(uri)
        return False


def check_whole_table(root: str, table: Table) -> None:
    """Raise TornRoot if the table cannot be read after a loss of power; it may be missing."""
    folder = local_folder(table_uri(root, table))
    if folder is None or not (folder / "_delta_log").exists():
        return
    try:
        check_whole(folder)
    except TornTable as error:
        raise TornRoot(
            f"{error}; `group-coordinator repair --root {root}` tells what can be done"
        ) from error


def ensure_table(root: str, table: Table) -> DeltaTable:
    """Open the table, created if it is missing, and with this release's columns if it lacks some.

    Raises SchemaMismatch for a table of other rows, LaterRelease for one that a later release has
    changed so that this one cannot use it, UnfitStore for a table that is missing in a store that
    would not keep two writers apart.
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
    """Return the last batch of a query that any of the tables `WRITTEN` has, -1 if none has one."""
    versions = [open_table(root, table).transaction_version(query_id) for table in WRITTEN]
    return max(-1 if version is None else version for version in versions)


def open_table(root: str, table: Table) -> DeltaTable:
    """Open an existing table; raises deltalake's TableNotFoundError."""
    return open_delta(table_uri(root, table))
