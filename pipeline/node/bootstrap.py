"""The bootstrap of a take-over: events made from the tables, with which a stream begins.

A stream without a streaming checkpoint has no groups. So the node writes a bootstrap before the
first batch: a table of events that the stream reads in addition to the requests. The bootstrap has
one event for each group of the offsets topic, which loads the group, and every request without an
answer. The stream reads `requests` from the version after the last one that the bootstrap covers.

Therefore the loss of a streaming checkpoint loses no data:

* An acknowledged commit is kept, because it is a record of the offsets topic.
* A waiting request is kept, because it has no answer.
* No request is answered twice, because answered requests are not in the bootstrap.
* No request is recorded twice, because a waiting request with records is loaded together with them.

DuckDB and pyarrow write the bootstrap within a memory limit, on local disks and in object stores.
No JVM is needed.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import TableFiles, open_delta
from group_coordinator.pipeline.node.load_events import shown_log, write_load_events
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.node.recorded_requests import RecordedRequests
from group_coordinator.pipeline.node.remembered import write_remembered
from group_coordinator.pipeline.node.waiting_requests import write_waiting_requests
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.bootstrap import Bootstrap
from group_coordinator.pipeline.stream.packed import PACKED_SCHEMA
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import DataFile

log = logging.getLogger(__name__)

DEFAULTS = CoordinatorSettings()

# The transactions (`txn`) of a bootstrap's table. Their versions are the fields of its `Bootstrap`.
_BEGINS = "begins"
_REQUESTS_BEGIN = "requests-begin"
_STATE_VERSION = "state-version"
_REQUESTS_TABLE = "requests-table"
# The state version of a bootstrap without the transaction `state-version`.
_FIRST_STATE_VERSION = 2


def prepare_bootstrap(
    root: str,
    uri: str,
    partition_set: PartitionSet | None = None,
    transactions: Mapping[str, int] | None = None,
    ours: CoordinatorSettings = DEFAULTS,
) -> Bootstrap:
    """Write the content of the tables as events to the table at `uri`, replacing its rows.

    `partition_set` selects the groups and the waiting requests; None selects all. Call this before
    the first batch of a streaming checkpoint, and never after it: a batch that is run again must
    read the same bootstrap. `transactions` are committed with the events. Requests larger than
    `max.request.size` are refused. Raises Failure with DuckDB's message.
    """
    began = monotonic()
    with ReadAhead(root, ours) as ahead:
        ahead.read_on()
        write_deltalake(uri, PACKED_SCHEMA.empty_table(), mode="overwrite", schema_mode="overwrite")
        version, number = open_delta(uri).version() + 1, number_of_requests_table(root)
        bootstrap = Bootstrap(uri, version, ahead.version + 1, requests_table=number)
        begins = {
            _BEGINS: bootstrap.version,
            _REQUESTS_BEGIN: bootstrap.first_version,
            _STATE_VERSION: bootstrap.state_version,
            _REQUESTS_TABLE: number,
        }
        append_bootstrap(ahead, uri, partition_set, begins | dict(transactions or {}))
    log.info("took over from the tables in %.1f s", monotonic() - began)
    return bootstrap


def prepared_bootstrap(uri: str) -> Bootstrap | None:
    """Return the result of `prepare_bootstrap` for the table at `uri`; None if it wrote none.

    Spark's offset log has only the end of each batch, so it lacks the start of the first one. If
    the first batch was interrupted and is run again, Spark asks the source for that start.
    """
    handle = open_delta(uri)
    version = handle.transaction_version(_BEGINS)
    first_version = handle.transaction_version(_REQUESTS_BEGIN)
    if version is None or first_version is None:
        return None
    states = handle.transaction_version(_STATE_VERSION)
    number = handle.transaction_version(_REQUESTS_TABLE)
    return Bootstrap(uri, version, first_version, states or _FIRST_STATE_VERSION, number)


def number_of_requests_table(root: str) -> int:
    """Return a number that identifies the table of requests; a recreated table has another one.

    The number is 48 bits of a hash of the table's id, because a transaction's version is an
    integer.
    """
    table_id = str(open_delta(table_uri(root, REQUESTS)).metadata().id)
    return int.from_bytes(sha256(table_id.encode()).digest()[:6], "big")


def append_bootstrap(
    ahead: ReadAhead,
    uri: str,
    partition_set: PartitionSet | None,
    transactions: Mapping[str, int] | None = None,
    last_row: tuple[str, str] | None = None,
) -> None:
    """Append the events that load the groups of partitions, then their waiting requests.

    Between the two are the events with the answered requests that the groups remember. `last_row`
    comes last, in a separate row group. All events are one commit, with these transactions. `ahead`
    must have read after the last moment at which another node could decide for the partitions.
    Raises Failure with DuckDB's message.
    """
    partitions = None if partition_set is None else partition_set.partitions
    target = TableFiles(open_delta(uri), ahead.engine.scratch)
    log_ms = ahead.lately.newest_ms(partition_set, clock_ms())
    topic = shown_log(ahead.engine, ahead.root)
    files = write_load_events(ahead.engine, topic, target, partitions, log_ms=log_ms)
    files += write_remembered(ahead.lately, target, partition_set, log_ms)
    recorded = RecordedRequests(ahead.engine, ahead.root, topic, partitions)
    files += write_waiting_requests(ahead.waiting, target, partition_set, recorded)
    if last_row is not None:
        files += _write_row(last_row, target)
    if files or transactions:
        target.rewrite([], files, transactions)


def _write_row(row: tuple[str, str], target: TableFiles) -> list[DataFile]:
    path, local = target.new_file()
    pq.write_table(pa.table([[each] for each in row], schema=PACKED_SCHEMA), local)
    file = target.written(path, 1)
    assert file is not None  # it has a row
    return [file]
