"""Spark as the engine of a coordinator node (`pipeline.node.engine.StreamEngine`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import open_delta
from group_coordinator.pipeline.session.checkpoint_files import (
    delete_checkpoint,
    keep_text,
    last_planned,
    move,
    planned_ms,
    planned_offset,
    query_id,
    text_kept,
)
from group_coordinator.pipeline.session.checkpoint_location import hadoop_uri
from group_coordinator.pipeline.stream.event_source import read_events
from group_coordinator.pipeline.stream.kept_looks import NAME, looks_after
from group_coordinator.pipeline.stream.offset import Planned
from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
from group_coordinator.pipeline.stream.serving import Serving, to_sink
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.stream.stateful import answer
from group_coordinator.pipeline.stream.timer_watch import TimerWatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.coordinator.signatures import RequestKey
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap
    from group_coordinator.pipeline.stream.offset import Selection
    from group_coordinator.pipeline.stream.stateful import MachineFactory


class SparkEngine:
    """Runner of the streaming queries of one node, on a Spark session.

    `make_machine` makes the machine that decides, in each worker. `keys` verify the principals of
    requests; None accepts every principal. `serving` is the query that was begun last.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        settings: CoordinatorSettings,
        make_machine: MachineFactory = BatchMachine,
        keys: Sequence[RequestKey] | None = None,
    ) -> None:
        self.serving: Serving | None = None
        self._spark = spark
        self._root = root
        self._settings = settings
        self._make_machine = make_machine
        self._keys = None if keys is None else Signatures(keys).fingerprints

    def last_planned(self, checkpoint: str) -> Planned | None:
        """Return the newest batch that a streaming checkpoint has planned; None if none."""
        found = last_planned(self._spark, checkpoint)
        return None if found is None else Planned(*found, query_id(self._spark, checkpoint))

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint, or the folder of one, if it exists."""
        delete_checkpoint(self._spark, checkpoint)

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder, and the streaming checkpoint in it, at once; return False on failure."""
        return move(self._spark, folder, target)

    def begin(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        selection: Selection,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> Serving:
        """Begin a query; see `pipeline.node.engine.StreamEngine.begin`."""
        batch = replace(batch, keys=self._keys)
        sink, run = self._sink(checkpoint, planned, bootstrap, batch, epoch)
        bootstrap_end = open_delta(bootstrap.uri).version() + 1
        events = read_events(
            self._spark,
            self._root,
            self._settings,
            bootstrap,
            bootstrap_end,
            selection,
            run,
            "" if sink.timers is None else sink.timers.path,
        )
        query = to_sink(answer(events, self._make_machine), sink, hadoop_uri(checkpoint))
        self.serving = Serving(query.start, sink, self._root, bootstrap_end, run)
        return self.serving

    def _sink(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> tuple[Sink, int]:
        """Return the sink of a run of the query, and the number of the run."""
        offset_of_batch = functools.partial(planned_offset, self._spark, checkpoint)
        # Named after the streaming checkpoint, and in the bootstrap's folder, which Python can
        # reach.
        beside = f"{bootstrap.uri.rpartition('/')[0]}/{checkpoint.rpartition('/')[2]}"
        pinned = PinnedSettings(self._root, beside, batch, planned, epoch, offset_of_batch)
        kept = None if planned is None else text_kept(self._spark, checkpoint, NAME)
        looks = looks_after(planned, kept, self._settings.trigger_interval_ms, clock_ms())
        time_of_batch = functools.partial(planned_ms, self._spark, checkpoint)
        timers = TimerWatch(
            looks, time_of_batch, functools.partial(keep_text, self._spark, checkpoint, NAME)
        )
        sink = Sink(
            self._root,
            self._settings,
            epoch=epoch,
            pinned=pinned,
            timers=timers,
            config=batch.config,
            planned=-1 if planned is None else planned.batch_id,
        )
        return sink, pinned.run
