"""The bootstrap: events made from the tables, with which a stream begins or changes partitions.

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

Later the node appends to the bootstrap, when its partitions change:

* For a partition that it claims, the events that load the groups, and their waiting requests.
* For a partition that it releases, an event for each group that unloads the group.

All events of a claim are one commit, which has a transaction with the claim's epoch. So a node that
is killed has either loaded the whole claim or nothing of it.

If the node's query runs, the commit also has the query's next selection
(`pipeline.stream.selection`). `run` is then the number of the query's run. `run` None: no query has
begun, and the new query gets its selection as an argument.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import Appender, TableFiles, is_table, open_delta
from group_coordinator.pipeline.node.answered_requests import write_remembered_requests
from group_coordinator.pipeline.node.duckdb_view import open_engine
from group_coordinator.pipeline.node.load_events import (
    groups_with_records,
    offsets_topic_view,
    write_load_events,
)
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.node.waiting_requests import (
    RecordedRequests,
    write_waiting_requests,
)
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.offset import Bootstrap
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, PACKED_SCHEMA
from group_coordinator.pipeline.stream.selection import Selection, SelectionChange, change_row
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import DataFile, Epoch
    from group_coordinator.pipeline.node.stream_engine import StreamEngine

log = logging.getLogger(__name__)
DEFAULTS = CoordinatorSettings()
# The transactions (`txn`) of a bootstrap's table. Their versions are the fields of its `Bootstrap`.
_BEGINS = "begins"
_REQUESTS_BEGIN = "requests-begin"
_STATE_VERSION = "state-version"
_REQUESTS_TABLE = "requests-table"
# The state version of a bootstrap without the transaction `state-version`.
_FIRST_STATE_VERSION = 2
# The transaction (`txn`) of a bootstrap's table: its version is the epoch of the newest loaded
# claim.
CLAIMS = "claims"
# The transaction of a bootstrap's table: its version is the epoch of the start that began the
# stream.
_BEGUN = "begun"
# The version of a partition of which a stream skips no requests.
_NOTHING = -1
# The group of the event that wakes the stream without any other effect.
START_GROUP = "__coordinator_start"


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
    topic = offsets_topic_view(ahead.engine, ahead.root)
    files = write_load_events(ahead.engine, topic, target, partitions, log_ms=log_ms)
    files += write_remembered_requests(ahead.lately, target, partition_set, log_ms)
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


def begin_new_checkpoint(
    engine: StreamEngine,
    root: str,
    checkpoint: str,
    bootstrap_uri: str,
    partition_set: PartitionSet | None,
    epoch: int,
    ours: CoordinatorSettings = DEFAULTS,
    start: Epoch | None = None,
    of: int = 0,
) -> Bootstrap:
    """Delete a streaming checkpoint, and write the bootstrap with which a new one begins.

    The bootstrap includes the claims up to `epoch`. `partition_set` None is every one of `of`
    partitions. The new stream skips no requests of its partitions, because the versions that an
    earlier stream skipped may be those of a table of requests that was replaced since.
    `start` is the epoch of the node's start. With `start`, a streaming checkpoint that an earlier
    start began is never resumed again, nor is a copy of one.
    """
    engine.delete_checkpoint(checkpoint)
    partitions = range(of) if partition_set is None else partition_set.partitions
    earlier = passed_over(bootstrap_uri, partitions) if is_table(bootstrap_uri) else {}
    begun = {_passed_over(partition): _NOTHING for partition in earlier}
    if start is not None:
        begun[_BEGUN] = start.number
        appender = Appender(table_uri(root, RESPONSES), start)
        appender.append(None, _stream_of(start.node_id), start.number)
    return prepare_bootstrap(root, bootstrap_uri, partition_set, {CLAIMS: epoch} | begun, ours)


def is_newest_stream(root: str, bootstrap_uri: str, node_id: int) -> bool:
    """Whether no later start of the node has begun another stream than the bootstrap's."""
    newest = Appender(table_uri(root, RESPONSES)).last_version(_stream_of(node_id))
    return Appender(bootstrap_uri).last_version(_BEGUN) >= newest


def _stream_of(node_id: int) -> str:
    """Return the transaction of `responses` for a node's streams.

    Its version is the epoch of the start that began the newest stream.
    """
    return f"coordinator-stream-{node_id}"


def append_claims(
    ahead: ReadAhead,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    epoch: int,
    run: int | None = None,
    kept: Collection[int] = (),
) -> int:
    """Append the events that load newly claimed partitions, then their waiting requests.

    It is one commit. Its transactions record the newest claim, `epoch`, and the version of
    `requests` up to which the stream skips the partitions' requests. Without that version, a stream
    that has not reached it would decide requests again that the former owner has answered. A stream
    that is past it reads from there the requests that it has missed. With a `run`, the commit also
    selects the partitions `kept`.

    Returns the version, which is the one that `ahead` has read up to. `ahead` must have read on
    after the claim, when no other node decides for the partitions.
    """
    version = ahead.version
    last_row = None
    if run is not None:
        before = dict.fromkeys(partition_set.partitions, version)
        selection = select(bootstrap_uri, kept, partition_set.of, before)
        last_row = change_row(SelectionChange(run, selection))
    transactions = {CLAIMS: epoch}
    transactions |= {_passed_over(partition): version for partition in partition_set.partitions}
    append_bootstrap(ahead, bootstrap_uri, partition_set, transactions, last_row)
    return version


def select(
    bootstrap_uri: str, kept: Collection[int], of: int, brought_in: Mapping[int, int] | None = None
) -> Selection:
    """Return the selection of a stream that has these partitions, of `of` in all.

    `brought_in` maps the partitions that the bootstrap is about to load to the version of
    `requests` that it covers.
    """
    partitions = None if len(kept) == of else tuple(sorted(kept))
    return Selection(partitions, of, {**passed_over(bootstrap_uri, kept), **(brought_in or {})})


def newest_claim(bootstrap_uri: str) -> int:
    """Return the epoch of the newest claim that a bootstrap loads."""
    return Appender(bootstrap_uri).last_version(CLAIMS)


def bootstrap_end(bootstrap_uri: str) -> int:
    """Return the version after the newest one of a bootstrap's table."""
    return open_delta(bootstrap_uri).version() + 1


def passed_over(bootstrap_uri: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the version of `requests` up to which the stream skips each partition's requests.

    A partition with which the streaming checkpoint began is left out.
    """
    handle = open_delta(bootstrap_uri)
    versions = {each: handle.transaction_version(_passed_over(each)) for each in sorted(partitions)}
    return {each: found for each, found in versions.items() if found not in (None, _NOTHING)}


def _passed_over(partition: int) -> str:
    """Return the transaction of a bootstrap's table with the version that `passed_over` returns."""
    return f"passed-over-{partition}"


def append_unloads(
    root: str,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    run: int | None = None,
    kept: Collection[int] = (),
) -> None:
    """Append the events that unload partitions: one for each group with records.

    A group without records is removed when its next timer is due. Its parked requests, for example
    a first join, stay unanswered, so the partition's next owner decides them. With a `run`, the
    commit also selects the partitions `kept`.
    """
    with open_engine(beside_batches=run is not None) as engine:
        groups = groups_with_records(engine, root, partition_set.partitions)
    rows = [(group, FIRST_KEY + UNLOAD_EVENT) for group in sorted(groups)]
    if run is not None:
        selection = select(bootstrap_uri, kept, partition_set.of)
        rows.insert(0, change_row(SelectionChange(run, selection)))
    _append(bootstrap_uri, rows)


def wake(bootstrap_uri: str) -> None:
    """Append an event that makes the stream run a batch, even if there are no requests."""
    _append(bootstrap_uri, [(START_GROUP, FIRST_KEY + WAKE_EVENT)])


def _append(bootstrap_uri: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        groups, texts = zip(*rows, strict=True)
        Appender(bootstrap_uri).append(pa.table([groups, texts], schema=PACKED_SCHEMA))
