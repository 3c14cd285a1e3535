"""Spark as the engine of a coordinator node (`pipeline.node.engine.StreamEngine`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from coordinator.group.batch import BatchMachine
from pipeline.stream.batch_topics import BatchTopics
from pipeline.stream.checkpoint_files import delete_checkpoint, last_planned
from pipeline.stream.serving import Serving, serve
from pipeline.stream.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordinator.group.batch import BatchSettings
    from coordinator.group.partition import PartitionSet
    from pipeline.delta.epoch import Epoch
    from pipeline.settings import CoordinatorSettings
    from pipeline.stream.bootstrap import Bootstrap
    from pipeline.stream.stateful import MachineFactory


class SparkEngine:
    """Runs the streaming queries of one node on a Spark session.

    `make_machine` None is the real one. `serving` is the query that was begun last.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        settings: CoordinatorSettings,
        make_machine: MachineFactory | None = None,
    ) -> None:
        self.serving: Serving | None = None
        self._spark = spark
        self._root = root
        self._settings = settings
        self._make_machine = make_machine

    def last_planned(self, checkpoint: str) -> str | None:
        """The offset of the last batch that a streaming checkpoint has planned; None if none."""
        return last_planned(self._spark, checkpoint)

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint, if it is there."""
        delete_checkpoint(self._spark, checkpoint)

    def begin(
        self,
        checkpoint: str,
        bootstrap: Bootstrap,
        partition_set: PartitionSet | None,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> Serving:
        """Begin a query; see `pipeline.node.engine.StreamEngine.begin`."""
        topics = BatchTopics(self._root, checkpoint, epoch)
        self.serving = serve(
            self._spark,
            self._root,
            self._settings,
            self._make_machine or functools.partial(BatchMachine, batch),
            Sink(self._root, self._settings, epoch=epoch, topics=topics),
            checkpoint,
            bootstrap,
            partition_set,
        )
        return self.serving
