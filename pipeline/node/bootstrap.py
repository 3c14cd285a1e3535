"""The bootstrap: a table of events that load a node's groups into its stream, or unload them.

A new streaming checkpoint has no groups. So before its first batch, the node writes an event for
each group of the offsets topic, which loads it, and every request without an answer. The stream
reads `requests` from the next version on. So losing a streaming checkpoint loses no data:

* An acknowledged commit is a record of the offsets topic.
* A waiting request has no answer, so it is in the bootstrap; an answered one is not.
* A waiting request with records is loaded with them, so it is not recorded twice.

DuckDB and pyarrow write the bootstrap within a memory limit, on local disks and in object stores,
without a JVM. Later the node appends to it:

* For a claimed partition, the events that load its groups, and their waiting requests. A claim is
  one commit, with the claim's epoch as a transaction (`txn`), so a killed node has loaded all of it
  or nothing.
* For a released partition, an event for each group that unloads it.

If the query runs, the commit also has its next selection of partitions
(`pipeline.stream.offset`), and `run` is the number of the query's run. Without `run`, the query
has not begun, and gets its selection as an argument.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import (
    Appender,
    TableFiles,
    is_table,
    open_delta,
    table_number,
)
from group_coordinator.pipeline.node.answered_requests import write_remembered_requests
from group_coordinator.pipeline.node.load_events import (
    groups_with_records,
    offsets_topic_view,
    write_load_events,
)
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.node.waiting_requests import (
    RecordedRequests,
    write_waiting_requests,
)
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.offset import (
    Bootstrap,
    Selection,
    SelectionChange,
    change_row,
)
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, PACKED_SCHEMA
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import DataFile, Epoch
    from group_coordinator.pipeline.node.stream_engine import StreamEngine

log = logging.getLogger(__name__)
DEFAULTS = CoordinatorSettings()
# Transactions (`txn`) of a bootstrap's table; their versions are the fields of its `Bootstrap`.
_BEGINS = "begins"
_REQUESTS_BEGIN = "requests-begin"
_STATE_VERSION = "state-version"
_REQUESTS_TABLE = "requests-table"
# The state version of a bootstrap without the transaction `state-version`.
_FIRST_STATE_VERSION = 2
# A transaction of a bootstrap's table: its version is the epoch of the newest loaded claim.
CLAIMS = "claims"
# A transaction of a bootstrap's table: its version is the epoch of the process that began the
# stream.
_BEGUN = "begun"
# The version of a partition if its stream skips no requests.
_NOTHING = -1
# The group of the event that only makes the stream run a batch.
START_GROUP = "__coordinator_start"


def prepare_bootstrap(
    root: str,
    uri: str,
    partition_set: PartitionSet | None = None,
    transactions: Mapping[str, int] | None = None,
    ours: CoordinatorSettings = DEFAULTS,
) -> Bootstrap:
    """Replace the rows of the table at `uri` by events that load the groups and waiting requests.

    `partition_set` selects the groups; None selects all. `transactions` are committed with the
    events. Requests larger than `max.request.size` are refused. Call it only before the first batch
    of a streaming checkpoint, because a repeated batch must read the same bootstrap. Raises Failure
    with DuckDB's message.
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
    """Return what `prepare_bootstrap` returned for the table at `uri`, None if it wrote none.

    Spark's offset log has only the end of each batch; if the first batch is repeated, Spark asks
    the source for its beginning.
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
    """Return the `table_number` of the table of requests."""
    return table_number(str(open_delta(table_uri(root, REQUESTS)).metadata().id))


def append_bootstrap(
    ahead: ReadAhead,
    uri: str,
    partition_set: PartitionSet | None,
    transactions: Mapping[str, int] | None = None,
    last_row: tuple[str, str] | None = None,
) -> None:
    """Append the events that load partitions' groups, remembered request ids, and waiting requests.

    `last_row` comes last, in a separate row group. All events are one commit, with these
    transactions. `ahead` must have read on after the last moment at which another node could decide
    for the partitions. Raises Failure with DuckDB's message.
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
    """Delete a streaming checkpoint, and write the bootstrap of a new one.

    The bootstrap includes the claims up to `epoch`. `partition_set` None is all `of` partitions.
    The new stream skips no requests, because `requests` may have been replaced. With `start`, the
    epoch of the node's process, no checkpoint of an earlier process is resumed again.
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
    """Whether no later process of the node has begun a new streaming checkpoint.

    The bootstrap's table and `responses` record the epoch that began each.
    """
    newest = Appender(table_uri(root, RESPONSES)).last_version(_stream_of(node_id))
    return Appender(bootstrap_uri).last_version(_BEGUN) >= newest


def _stream_of(node_id: int) -> str:
    """Return the transaction of `responses` with the epoch that began a node's newest stream."""
    return f"coordinator-stream-{node_id}"


def append_claims(
    ahead: ReadAhead,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    epoch: int,
    run: int | None = None,
    kept: Collection[int] = (),
) -> int:
    """Append, in one commit, the events that load claimed partitions, then their waiting requests.

    Its transactions record the newest claim, `epoch`, and the version of `requests` that the events
    cover, which is returned. Up to it, the stream skips the partitions' requests, which the former
    owner has answered; a stream that is past it reads what it has missed. With `run`, the commit
    also selects the partitions `kept`. `ahead` must have read on after the claim.
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
    """Return the partitions of `requests` that a stream reads: `kept`, out of `of` partitions.

    `brought_in` maps partitions that the bootstrap is about to load to the version of `requests`
    that it covers.
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
    """Return, by partition, the version of `requests` up to which the stream skips its requests.

    The bootstrap records it with each claim, because the claim's events cover the earlier requests.
    Partitions with which the streaming checkpoint began are left out.
    """
    handle = open_delta(bootstrap_uri)
    versions = {each: handle.transaction_version(_passed_over(each)) for each in sorted(partitions)}
    return {each: found for each, found in versions.items() if found not in (None, _NOTHING)}


def _passed_over(partition: int) -> str:
    return f"passed-over-{partition}"


def append_unloads(
    root: str,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    run: int | None = None,
    kept: Collection[int] = (),
) -> None:
    """Append an event for each group with records that unloads it, for released partitions.

    A group without records is removed at its next timer; its parked requests, such as a first join,
    stay unanswered for the next owner. With `run`, the commit also selects the partitions `kept`.
    """
    with open_engine(beside_batches=run is not None) as engine:
        groups = groups_with_records(engine, root, partition_set.partitions)
    rows = [(group, FIRST_KEY + UNLOAD_EVENT) for group in sorted(groups)]
    if run is not None:
        selection = select(bootstrap_uri, kept, partition_set.of)
        rows.insert(0, change_row(SelectionChange(run, selection)))
    _append(bootstrap_uri, rows)


def wake(bootstrap_uri: str) -> None:
    """Append an event to the bootstrap that makes the stream run a batch, even without requests."""
    _append(bootstrap_uri, [(START_GROUP, FIRST_KEY + WAKE_EVENT)])


def _append(bootstrap_uri: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        groups, texts = zip(*rows, strict=True)
        Appender(bootstrap_uri).append(pa.table([groups, texts], schema=PACKED_SCHEMA))
