"""Taking over: what a new streaming checkpoint starts from is what the tables say.

A stream that begins without a streaming checkpoint has no groups. So before its first batch a
bootstrap is written, a table of events that the stream reads beside the requests: for every group
of the offsets topic one event that loads it, and every request that no answer was written for. The
stream's own requests begin where the bootstrap ends. So a lost streaming checkpoint loses nothing:
no acknowledged commit, because it is a record; no waiting request, because it has no answer; and
nothing is answered twice.

DuckDB and pyarrow write the bootstrap, within a bound of memory, wherever the tables lie: no JVM is
needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Transaction, write_deltalake

from pipeline.clock import monotonic
from pipeline.delta.engine import Engine
from pipeline.delta.table import open_delta
from pipeline.delta.table_files import TableFiles
from pipeline.node.load_events import write_load_events
from pipeline.node.remembered import write_remembered
from pipeline.node.waiting_requests import WaitingRequests, write_waiting_requests
from pipeline.settings import CoordinatorSettings
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.packed import PACKED_SCHEMA
from pipeline.tables.store import open_table
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltalake import DeltaTable

    from coordinator.group.partition import PartitionSet
    from pipeline.delta.data_files import DataFile

log = logging.getLogger(__name__)

DEFAULTS = CoordinatorSettings()

# The transactions of a bootstrap's table whose versions are those of its `Bootstrap`.
_BEGINS = "begins"
_REQUESTS_BEGIN = "requests-begin"
# A bucket of the offsets topic's records takes a quarter of it (`pipeline.node.load_events`).
_MEMORY = 1 << 30


@contextlib.contextmanager
def open_engine(beside_batches: bool = False) -> Iterator[Engine]:
    """A DuckDB for a bootstrap, over a folder of its own to spill to.

    `beside_batches` leaves the other cores to the batches of a query that runs.
    """
    threads = 1 if beside_batches else os.cpu_count() or 1
    with (
        tempfile.TemporaryDirectory(prefix="take-over-") as scratch,
        Engine(_MEMORY, threads, Path(scratch)) as engine,
    ):
        # Nothing here has an order, and row groups can be bounded in bytes only without one.
        engine.run("SET preserve_insertion_order = false")
        yield engine


def prepare_bootstrap(
    root: str,
    uri: str,
    partition_set: PartitionSet | None = None,
    transactions: Sequence[Transaction] = (),
    ours: CoordinatorSettings = DEFAULTS,
) -> Bootstrap:
    """Write what the tables hold as events to the table at `uri`, replacing what is there.

    `partition_set` says whose groups are loaded and whose requests wait, None for all. Must be done
    before the first batch of a streaming checkpoint, and never after it: a batch that is run again
    reads the same bootstrap. `transactions` are committed with the events, of which requests of
    more than `max.request.size` are refused. Raises Failure with what DuckDB says.
    """
    requests = open_table(root, REQUESTS)
    write_deltalake(uri, PACKED_SCHEMA.empty_table(), mode="overwrite", schema_mode="overwrite")
    bootstrap = Bootstrap(uri, open_delta(uri).version() + 1, requests.version() + 1)
    begins = [
        Transaction(_BEGINS, bootstrap.version),
        Transaction(_REQUESTS_BEGIN, bootstrap.first_version),
    ]
    append_bootstrap(root, uri, requests, partition_set, [*begins, *transactions], ours)
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
    return Bootstrap(uri, version, first_version)


def append_bootstrap(
    root: str,
    uri: str,
    requests: DeltaTable,
    partition_set: PartitionSet | None,
    transactions: Sequence[Transaction] = (),
    ours: CoordinatorSettings = DEFAULTS,
    last_row: tuple[str, str] | None = None,
) -> None:
    """Append what loads the groups of partitions, then the requests that wait for them.

    Between them is what the groups remember of the requests that were answered, and after them
    `last_row`, in a row group of its own.

    All of it is one commit, with these transactions. The requests are those up to the handle's
    version. Raises Failure with what DuckDB says.
    """
    began = monotonic()
    partitions = None if partition_set is None else partition_set.partitions
    with open_engine(beside_batches=last_row is not None) as engine:
        target = TableFiles(open_delta(uri), engine.scratch)
        files = write_load_events(engine, root, target, partitions)
        files += write_remembered(engine, root, target, partition_set, ours)
        waiting = WaitingRequests(engine, root, requests, ours.max_request_size)
        files += write_waiting_requests(waiting, target, partition_set)
        if last_row is not None:
            files += _write_row(last_row, target)
        if files or transactions:
            target.rewrite([], files, transactions)
    log.info("took over from the tables in %.1f s", monotonic() - began)


def _write_row(row: tuple[str, str], target: TableFiles) -> list[DataFile]:
    path, local = target.new_file()
    pq.write_table(pa.table([[each] for each in row], schema=PACKED_SCHEMA), local)
    file = target.written(path, 1)
    assert file is not None  # it has a row
    return [file]
