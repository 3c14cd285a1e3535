"""Changes of a node's partitions, written to its stream through the bootstrap.

The stream reads the bootstrap before the requests. A streaming checkpoint begins with a bootstrap
(`pipeline.node.bootstrap`), and later the node appends to it:

* For a partition that it claims, the events that load the groups, and their waiting requests.
* For a partition that it releases, an event for each group that unloads the group.

All events of a claim are one commit, which has a transaction with the claim's epoch. So a node that
is killed has either loaded the whole claim or nothing of it.

If the node's query runs, the commit also has the query's next selection (`pipeline.stream.change`).
`run` is then the number of the query's run. `run` None: no query has begun, and the new query gets
its selection as an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from group_coordinator.pipeline.delta import Appender, open_delta
from group_coordinator.pipeline.node.bootstrap import (
    DEFAULTS,
    append_bootstrap,
    prepare_bootstrap,
)
from group_coordinator.pipeline.node.load_events import groups_with_records
from group_coordinator.pipeline.node.scan_engine import open_engine
from group_coordinator.pipeline.stream.change import SelectionChange, change_row
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed import FIRST_KEY, PACKED_SCHEMA
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.node.engine import StreamEngine
    from group_coordinator.pipeline.node.read_ahead import ReadAhead
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap

# The transaction (`txn`) of a bootstrap's table: its version is the epoch of the newest loaded
# claim.
CLAIMS = "claims"
# The transaction of a bootstrap's table: its version is the epoch of the start that began the
# stream.
_BEGUN = "begun"
# The group of the event that wakes the stream without any other effect.
START_GROUP = "__coordinator_start"


def begin_afresh(
    engine: StreamEngine,
    root: str,
    checkpoint: str,
    bootstrap_uri: str,
    partition_set: PartitionSet | None,
    epoch: int,
    ours: CoordinatorSettings = DEFAULTS,
    start: Epoch | None = None,
) -> Bootstrap:
    """Delete a streaming checkpoint, and write the bootstrap with which a new one begins.

    The bootstrap includes the claims up to `epoch`. `partition_set` None is every partition.
    `start` is the epoch of the node's start. With `start`, a streaming checkpoint that an earlier
    start began is never resumed again, nor is a copy of one.
    """
    engine.delete_checkpoint(checkpoint)
    begun = {} if start is None else {_BEGUN: start.number}
    if start is not None:
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


def bring_in(
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
    return {each: version for each, version in versions.items() if version is not None}


def _passed_over(partition: int) -> str:
    """Return the transaction of a bootstrap's table with the version that `passed_over` returns."""
    return f"passed-over-{partition}"


def give_up(
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
