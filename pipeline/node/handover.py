"""Changes of partitions reach a node's stream by way of its bootstrap.

The stream reads the bootstrap before the requests. A streaming checkpoint begins with a bootstrap
(`pipeline.node.bootstrap`). Later the node appends to it: for a partition that it claims what loads
the groups, and the requests that wait for them; for a partition that it gives up an event that
unloads each group. What a claim brings is one commit, and a transaction of that commit says so: a
node that is killed has brought in all of a claim or nothing.

If the node's query runs, the commit also says what the query selects from then on
(`pipeline.stream.change`); `run` is the number of the query's run then, and null before a query
begins, which is told what it selects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.table import open_delta
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
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta.epoch import Epoch
    from group_coordinator.pipeline.node.engine import StreamEngine
    from group_coordinator.pipeline.node.read_ahead import ReadAhead
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap

# The transaction of a bootstrap's table whose version is the epoch of the newest claim in it.
CLAIMS = "claims"
# The transaction whose version is the epoch of the start that began the bootstrap's stream.
_BEGUN = "begun"
# The group of the event that wakes the stream and changes nothing.
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

    The bootstrap holds the claims up to `epoch`. `partition_set` None is every partition. From now
    on no copy of a streaming checkpoint that an earlier `start` of the node began is gone on with.
    """
    engine.delete_checkpoint(checkpoint)
    begun = {} if start is None else {_BEGUN: start.number}
    if start is not None:
        appender = Appender(table_uri(root, RESPONSES), start)
        appender.append(None, _stream_of(start.node_id), start.number)
    return prepare_bootstrap(root, bootstrap_uri, partition_set, {CLAIMS: epoch} | begun, ours)


def is_newest_stream(root: str, bootstrap_uri: str, node_id: int) -> bool:
    """Return whether no later start of a node has begun another stream than the bootstrap's."""
    newest = Appender(table_uri(root, RESPONSES)).last_version(_stream_of(node_id))
    return Appender(bootstrap_uri).last_version(_BEGUN) >= newest


def _stream_of(node_id: int) -> str:
    """The transaction of `responses` whose version is the start that began the newest stream."""
    return f"coordinator-stream-{node_id}"


def bring_in(
    ahead: ReadAhead,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    epoch: int,
    run: int | None = None,
    kept: Collection[int] = (),
) -> int:
    """Append what loads newly claimed partitions: their groups, then the requests that wait.

    It is one commit, which also says that the claims up to `epoch` are there, and up to which
    version of `requests` the stream passes over the partitions' requests. The stream may be behind
    that version: without it the stream would decide again what the partitions' former owner has
    answered. Or it may be beyond that version, and then it has missed requests of the partitions.
    A `run` selects the partitions `kept` from then on. Returns the version.

    It is the version to which `ahead` has read, which must have read on since the claim: only then
    nobody else decides for the partitions any more.
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
    """Return what a stream selects that has these partitions, of `of` in all.

    `brought_in` are those that the bootstrap is about to get, each with the version up to which it
    covers their requests.
    """
    partitions = None if len(kept) == of else tuple(sorted(kept))
    return Selection(partitions, of, {**passed_over(bootstrap_uri, kept), **(brought_in or {})})


def newest_claim(bootstrap_uri: str) -> int:
    """Return the epoch of the newest claim that a bootstrap has what loads its groups of."""
    return Appender(bootstrap_uri).last_version(CLAIMS)


def bootstrap_end(bootstrap_uri: str) -> int:
    """Return the version after the last one that a bootstrap's table has."""
    return open_delta(bootstrap_uri).version() + 1


def passed_over(bootstrap_uri: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return up to which version of `requests` the stream passes over partitions' requests.

    A partition that the streaming checkpoint began with is left out.
    """
    handle = open_delta(bootstrap_uri)
    versions = {each: handle.transaction_version(_passed_over(each)) for each in sorted(partitions)}
    return {each: version for each, version in versions.items() if version is not None}


def _passed_over(partition: int) -> str:
    """The transaction of a bootstrap's table whose version `passed_over` returns."""
    return f"passed-over-{partition}"


def give_up(
    root: str,
    bootstrap_uri: str,
    partition_set: PartitionSet,
    run: int | None = None,
    kept: Collection[int] = (),
) -> None:
    """Append what unloads partitions: an event for each group with records.

    A group without records is forgotten when its next timer is due. If somebody waits for its
    answer, a first join for one, the partition's next owner finds the request unanswered and
    decides it. A `run` selects the partitions `kept` only from then on.
    """
    with open_engine(beside_batches=run is not None) as engine:
        groups = groups_with_records(engine, root, partition_set.partitions)
    rows = [(group, FIRST_KEY + UNLOAD_EVENT) for group in sorted(groups)]
    if run is not None:
        selection = select(bootstrap_uri, kept, partition_set.of)
        rows.insert(0, change_row(SelectionChange(run, selection)))
    _append(bootstrap_uri, rows)


def wake(bootstrap_uri: str) -> None:
    """Append an event that makes the stream run a batch, even if nobody asks for anything."""
    _append(bootstrap_uri, [(START_GROUP, FIRST_KEY + WAKE_EVENT)])


def _append(bootstrap_uri: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        groups, texts = zip(*rows, strict=True)
        Appender(bootstrap_uri).append(pa.table([groups, texts], schema=PACKED_SCHEMA))
