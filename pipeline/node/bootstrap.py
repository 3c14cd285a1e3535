"""Taking over: the bootstrap, the events of the tables with which a stream begins.

A stream that begins without a streaming checkpoint has no groups. So before its first batch a
bootstrap is written, a table of events that the stream reads beside the requests: for every group
of the offsets topic one event that loads it, and every request that no answer was written for. The
stream's own requests begin where the bootstrap ends.

So a lost streaming checkpoint loses nothing: no acknowledged commit, because it is a record; no
waiting request, because it has no answer. Nothing is answered twice, because what was answered is
not in the bootstrap. Nothing is recorded twice, because a waiting request whose records stand comes
with them.

DuckDB and pyarrow write the bootstrap, within a bound of memory, wherever the tables lie: no JVM is
needed.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.node.load_events import shown_log, write_load_events
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.node.recorded_requests import RecordedRequests
from group_coordinator.pipeline.node.remembered import write_remembered
from group_coordinator.pipeline.node.waiting_requests import write_waiting_requests
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.bootstrap import Bootstrap
from group_coordinator.pipeline.stream.packed import PACKED_SCHEMA
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta.data_files import DataFile

log = logging.getLogger(__name__)

DEFAULTS = CoordinatorSettings()

# The transactions of a bootstrap's table whose versions are those of its `Bootstrap`.
_BEGINS = "begins"
_REQUESTS_BEGIN = "requests-begin"
_STATE_VERSION = "state-version"
_REQUESTS_TABLE = "requests-table"
# That of the releases which did not say it.
_FIRST_STATE_VERSION = 2


def prepare_bootstrap(
    root: str,
    uri: str,
    partition_set: PartitionSet | None = None,
    transactions: Mapping[str, int] | None = None,
    ours: CoordinatorSettings = DEFAULTS,
) -> Bootstrap:
    """Write what the tables hold as events to the table at `uri`, replacing what is there.

    `partition_set` says whose groups are loaded and whose requests wait, None for all. Must be done
    before the first batch of a streaming checkpoint, and never after it: a batch that is run again
    reads the same bootstrap. `transactions` are committed with the events, of which requests of
    more than `max.request.size` are refused. Raises Failure with what DuckDB says.
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
    """Return what `prepare_bootstrap` returned for the table at `uri`; None if it wrote none.

    Spark's log of offsets has where each batch ends, and so not where the first one begins: Spark
    asks the source again when the first batch was cut off and is run again.
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
    """Return the number by which the table of requests differs from one that is made anew.

    It is 48 bits of a hash of the table's id, because a transaction has a number and no text.
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
    """Append what loads the groups of partitions, then the requests that wait for them.

    Between them is what the groups remember of the requests that were answered, and after them
    `last_row`, in a row group of its own.

    All of it is one commit, with these transactions. The requests are those that were read when
    nobody else decided for the partitions any more. Raises Failure with what DuckDB says.
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
