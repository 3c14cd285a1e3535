"""The query of a node: begun once, and changed to other partitions while it runs.

A change has these steps. If the node is killed between them, its next process begins the query with
the partitions of the cluster state, and resumes from the streaming checkpoint.

1. The cluster state has new claims of the node, or partitions that the node unloads.
2. The query gets settings with the new claims, pinned for its next batch: a repeated batch uses the
   same settings (`pipeline.stream.pinned_settings`). They still include the partitions to unload.
3. One commit to the bootstrap has the events that load or unload groups, and the query's next
   selection of partitions. The batch that reads it begins to read the requests of claimed
   partitions, from the version that the commit does not cover (until then, `consumed` keeps
   `requests` from that version), and no longer reads the requests of unloaded partitions.
4. After that batch, the unloaded partitions may be released.

A node without partitions begins a new streaming checkpoint, because no node retains the log of
`requests` for an older one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.coordinator.ownership import NO_EPOCH, ClusterState, PartitionState, named
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import RetryBudget
from group_coordinator.pipeline.node.bootstrap import (
    append_claims,
    append_unloads,
    begin_new_checkpoint,
    bootstrap_end,
    newest_claim,
    passed_over,
    select,
    wake,
)
from group_coordinator.pipeline.node.read_ahead import ClaimReadAhead, ReadAhead
from group_coordinator.pipeline.node.resumption import (
    bootstrap_uri,
    find_resumption,
    stream_uri,
    tables_folder,
    take_folder,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from group_coordinator.coordinator.config import GroupCoordinatorConfig
    from group_coordinator.coordinator.group.coordinator import Node
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.node.stream_engine import RunningQuery, StreamEngine
    from group_coordinator.pipeline.settings import CoordinatorSettings, Settings
    from group_coordinator.pipeline.stream.offset import Bootstrap, Planned

log = logging.getLogger(__name__)


class _Change(Struct, frozen=True):
    """The partitions that a running query gains or unloads.

    `is_written`: whether the change's events are in the bootstrap for the query to read.
    """

    claimed: frozenset[int]
    unload: tuple[int, ...]
    is_written: bool = False


class NodeQuery:
    """The streaming query of one process of a node, which writes under the process's `epoch`.

    `running` is None until the query begins. `starts` are the epochs of the node's processes so
    far; the newest streaming checkpoint of them is taken. `served` are the partitions that the
    query decides for. A failed operation is retried for `offsets.commit.timeout.ms`; then
    CommitTimeoutError is raised.
    """

    def __init__(
        self,
        engine: StreamEngine,
        root: str,
        settings: Settings,
        node: Node,
        epoch: Epoch,
        starts: Sequence[int],
    ) -> None:
        self.running: RunningQuery | None = None
        self.served: frozenset[int] = frozenset()
        self._engine = engine
        self._root = root
        self._ours = settings.coordinator
        self._config = settings.group
        self._num_partitions = self._config.offsets_topic_num_partitions
        self._node = node
        self._epoch = epoch
        location = self._ours.checkpoint_location
        folder = take_folder(engine, root, epoch, starts, location)
        self._checkpoint = stream_uri(folder)
        self._bootstrap = bootstrap_uri(tables_folder(root, epoch, location))
        self._ahead = ClaimReadAhead(root, self._ours)
        self._changing: _Change | None = None
        # The first version of `requests` that the query needs for the change in progress.
        self._needed: int | None = None

    # --- state ----------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether the query has begun and has loaded the groups of all its partitions."""
        return self.running is not None and self.running.is_ready()

    def is_changing(self) -> bool:
        """Whether a change of partitions is in progress; `continue_change` continues it."""
        return self._changing is not None

    def consumed(self) -> int | None:
        """Return the first version of `requests` that the query may still read, None if unknown."""
        version = None if self.running is None else self.running.consumed()
        if version is not None and self._needed is not None:
            return min(version, self._needed)
        return version

    # --- running --------------------------------------------------------------------------------

    def begin(self, cluster: ClusterState, unload: Collection[int] = ()) -> RunningQuery:
        """Begin the query with the node's partitions, except those in `unload`.

        They become a change in progress, which unloads their groups.
        """
        began = monotonic()
        kept = cluster.kept_by(self._node.node_id)
        bootstrap, planned = self._prepare(cluster, kept)
        if unload:
            append_unloads(self._root, self._bootstrap, self._set_of(unload))
        wake(self._bootstrap)
        selection = select(self._bootstrap, kept, self._num_partitions)
        settings = self._batch_settings(cluster)
        self.running = self._engine.begin(
            self._checkpoint, planned, bootstrap, selection, settings, self._epoch
        )
        self.served = frozenset(kept)
        if unload:
            self._changing = _Change(frozenset(), tuple(unload), is_written=True)
        log.info("query started for %d partitions after %.1f s", len(kept), monotonic() - began)
        return self.running

    def change(self, cluster: ClusterState, unload: Collection[int] = ()) -> None:
        """Begin to change the running query to the node's present partitions."""
        assert self.running is not None  # else it is begun
        kept = cluster.kept_by(self._node.node_id)
        budget = self._retry_budget()
        newest = budget.run("read claims", partial(newest_claim, self._bootstrap))
        claimed = frozenset(p for p, state in kept.items() if state.epoch > newest)
        settings = self._batch_settings(cluster)
        claims = {**(settings.claims or {}), **settings.unloading}
        change = partial(self.running.change, replace(settings, claims=claims), claimed)
        budget.run("change the query", change)
        # If another node claims them later, this node was fenced (`CoordinatorNode.check`).
        self.served |= claimed
        if claimed:
            # Meanwhile the query begins a batch with the new claims.
            budget.run("read what claims need", self._ahead.read_on)
        self._changing = _Change(claimed, tuple(unload))

    def continue_change(self, cluster: ClusterState) -> tuple[int, ...]:
        """Continue a change as far as the query's progress allows.

        Returns the unloaded partitions once the change has ended.
        """
        running, change = self.running, self._changing
        if running is None or change is None:
            return ()
        if not change.is_written:
            if not running.is_changed():
                return ()
            self._write(cluster, running, change)
            self._changing = replace(change, is_written=True)
        if not running.is_ready():
            return ()
        self._changing = self._needed = None
        return change.unload

    def read_ahead(self, cluster: ClusterState) -> None:
        """Read the data for claims of partitions that move to this node, before the claims."""
        coming = cluster.meant_for(self._node.node_id).values()
        if coming:
            self._ahead.read(any(each.is_let_go for each in coming))
        else:
            self._ahead.rest()

    def stop(self) -> None:
        """Stop the query between two batches, if it has begun."""
        if self.running is not None:
            self.running.stop()

    def abandon(self) -> None:
        """End the query at once, if it has begun, and free the memory of `read_ahead`."""
        if self.running is not None:
            self.running.abandon()
        self._ahead.close()

    # --- steps ------------------------------------------------------------------------------------

    def _write(self, cluster: ClusterState, running: RunningQuery, change: _Change) -> None:
        kept = cluster.kept_by(self._node.node_id)
        budget = self._retry_budget()
        if change.claimed:
            append = partial(self._append_claims, change.claimed, kept, running.run)
            self._needed = budget.run("load claimed groups", append) + 1
        if change.unload:
            unload = self._set_of(change.unload)
            # A retry is safe: unloading a group twice changes nothing.
            unloaded = partial(
                append_unloads, self._root, self._bootstrap, unload, running.run, kept
            )
            budget.run("unload groups", unloaded)
        end = partial(bootstrap_end, self._bootstrap)
        running.expect(budget.run("read the bootstrap", end))
        self.served = frozenset(kept)
        log.info("deciding for %d partitions from now on: %s", len(kept), named(kept))

    def _append_claims(
        self, claimed: frozenset[int], kept: dict[int, PartitionState], run: int
    ) -> int:
        """Append the events that load the groups of claimed partitions to the bootstrap.

        Returns the version of `requests` that they cover. If an earlier attempt has committed,
        nothing is appended: loading a group twice would undo the decisions made in between.
        """
        epoch = max(kept[partition].epoch for partition in claimed)
        if newest_claim(self._bootstrap) >= epoch:
            return min(passed_over(self._bootstrap, claimed).values())
        wanted = self._set_of(claimed)
        return append_claims(self._ahead.present(), self._bootstrap, wanted, epoch, run, kept)

    def _prepare(
        self, cluster: ClusterState, kept: dict[int, PartitionState]
    ) -> tuple[Bootstrap, Planned | None]:
        """Write the bootstrap that loads the groups of all claims of this node.

        Returns the bootstrap, and the batch that the query resumes from, None with a new streaming
        checkpoint.
        """
        newest = max((state.epoch for state in kept.values()), default=NO_EPOCH)
        claims = [state.epoch for state in cluster.owned_by(self._node.node_id).values()]
        left = find_resumption(
            self._engine,
            self._root,
            self._checkpoint,
            self._bootstrap,
            claims,
            self._node.node_id,
        )
        if left is None:
            bootstrap = begin_new_checkpoint(
                self._engine,
                self._root,
                self._checkpoint,
                self._bootstrap,
                None if len(kept) == self._num_partitions else self._set_of(kept),
                newest,
                self._ours,
                self._epoch,
                self._num_partitions,
            )
            return bootstrap, None
        new = frozenset(p for p, state in kept.items() if state.epoch > left.claim)
        if new:
            with ReadAhead(self._root, self._ours) as ahead:
                ahead.read_on()
                append_claims(ahead, self._bootstrap, self._set_of(new), newest)
        return left.bootstrap, left.planned

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self._config.offsets_commit_timeout_ms)

    def _set_of(self, partitions: Collection[int]) -> PartitionSet:
        return PartitionSet(frozenset(partitions), self._num_partitions)

    def _batch_settings(self, cluster: ClusterState) -> BatchSettings:
        settings = batch_settings(self._ours, self._config, self._node, self._epoch.number)
        claims: dict[bool, dict[int, int]] = {False: {}, True: {}}
        for number, state in cluster.owned_by(self._node.node_id).items():
            claims[state.unloading][number] = state.epoch
        return replace(settings, claims=claims[False], unloading=claims[True])


def batch_settings(
    ours: CoordinatorSettings,
    config: GroupCoordinatorConfig,
    node: Node,
    start_epoch: int = NO_EPOCH,
) -> BatchSettings:
    """Return the settings with which a batch is decided on Spark."""
    # A batch may wait for requests up to the trigger interval, without the coordinator being
    # silent.
    tolerance = ours.timer_tolerance_ms + ours.trigger_interval_ms
    return BatchSettings(
        config=config,
        node=node,
        start_epoch=start_epoch,
        dedup_window_ms=ours.request_dedup_window_ms,
        dedup_max_ids=ours.request_dedup_max_ids,
        silence_tolerance_ms=tolerance,
    )
