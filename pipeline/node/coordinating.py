"""A coordinator in a running Spark session: its engine, node and compaction, from start to stop.

`pipeline.node.job` imports this module while the JVM starts, because its imports are slow.

A stop is a controlled shutdown: the node first hands its partitions over (`HandOver`), and decides
for them until the next owners have read ahead. Otherwise their groups would wait while the other
nodes read the tables, which takes seconds if there is much data.

The hand-over ends early if no other node can take over, after a timeout, or if the query ends, as
when a supervisor also signals Spark's Python workers. The remaining partitions are taken over after
the stop. A node that is killed counts as dead when its lease ends.

Source: Kafka's controlled shutdown (KIP-631, BrokerHeartbeat's WantShutDown).
"""

from __future__ import annotations

import gc
import logging
import math
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.archive_maker import ArchiveMaker
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.session.start import missing_archive, with_location
from group_coordinator.pipeline.stream.spark_engine import SparkEngine
from group_coordinator.pipeline.tables import read_keys
from group_coordinator.pipeline.upkeep.schedule import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from group_coordinator.pipeline.node.stop_signals import StopRequest
    from group_coordinator.pipeline.ownership.fencing import ObservedLease
    from group_coordinator.pipeline.settings import Settings
    from group_coordinator.pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)


# The errors that end a coordinator with one line instead of a traceback.
ERRORS = (Failure, ConfigError, DeltaError, OSError, pa.ArrowException, Py4JError)
# The delay of the class archive, s: a coordinator is busy after its start, and may be stopped soon.
_ARCHIVE_AFTER_S = 30.0


def coordinate(
    spark: SparkSession,
    root: str,
    settings: Settings,
    make_machine: MachineFactory | None,
    stop: StopRequest,
    began: float,
    makes_archive: bool,
    seen: ObservedLease | None,
) -> None:
    """Run a coordinator until it is asked to stop; see `pipeline.node.job.run`.

    `began` is the time of the start by `pipeline.clock.monotonic`. `seen` is the node's lease, read
    before the JVM was started; None takes over from the lease's holder. Prints `ready` when
    requests are being answered. Raises one of `ERRORS`.
    """
    path = settings.coordinator.requests_keys_file
    # None accepts every principal.
    keys = tuple(read_keys(path)) if path else None
    make_machine = make_machine or partial(BatchMachine, None, keys or ())
    engine = SparkEngine(spark, root, settings.coordinator, make_machine, keys)
    coordinator = start(engine, root, with_location(settings, root, spark), seen)
    upkeep = Upkeep(root, settings.upkeep, clock_ms)
    archive = partial(missing_archive, settings, root) if makes_archive else lambda: None
    timeout_s = settings.coordinator.controlled_shutdown_timeout_ms / 1000
    _watch(coordinator, stop, upkeep, began, archive, timeout_s)


def _watch(
    coordinator: CoordinatorNode,
    stop: StopRequest,
    upkeep: Upkeep,
    began: float,
    archive: Callable[[], Path | None],
    hand_over_s: float,
) -> None:
    announced = False
    maker, make_at = ArchiveMaker(), math.inf
    try:
        while not stop.requested.wait(coordinator.pause_s() if announced else 0.02):
            coordinator.tick()
            if not announced and coordinator.is_ready():
                print("ready", flush=True)
                log.info("ready after %.1f s", monotonic() - began)
                announced = True
                # Exclude the objects of the start, nearly all of the process's memory, from garbage
                # collection: a full collection over them would delay every batch.
                gc.collect()
                gc.freeze()
                make_at = monotonic() + _ARCHIVE_AFTER_S
            if monotonic() > make_at:
                maker.begin(archive())
                make_at = math.inf
            if coordinator.does_upkeep():
                upkeep.run_due(clock_ms())
        hand_over = HandOver(coordinator, hand_over_s)
        while hand_over.advance() and not stop.at_once.wait(coordinator.pause_s()):
            pass
        coordinator.stop()
        log.info("stopped; other nodes take over without waiting for the lease to end")
    finally:
        maker.stop()
        coordinator.abandon()
        upkeep.stop()
        # Otherwise libraries report the objects that are not collected at exit as leaks.
        gc.unfreeze()


class HandOver:
    """The hand-over of a node's partitions before it stops, for at most `timeout_s`."""

    def __init__(self, node: CoordinatorNode, timeout_s: float) -> None:
        self._node = node
        self._began = monotonic()
        self._timeout_s = timeout_s
        self._is_said = False

    def advance(self) -> bool:
        """Do the next step; return whether to call again after the node's `pause_s`.

        False means that the node must be stopped now. An error is logged and returns False.
        """
        node = self._node
        if node.running_query is None or not node.left_to_hand_over() or self._timeout_s <= 0:
            return False
        try:
            if not self._is_said:
                count = node.left_to_hand_over()
                log.info("handing %d partitions over before the stop", count)
                node.hand_over()
                self._is_said = True
            node.tick()
        except STORE_FAILS as error:
            log.warning("the hand-over failed, and other nodes take over after the stop: %s", error)
            return False
        took_s, left = monotonic() - self._began, node.left_to_hand_over()
        if not left:
            log.info("no partitions left to hand over after %.1f s", took_s)
        elif took_s >= self._timeout_s:
            log.warning("%d partitions were not handed over in %.1f s", left, took_s)
        return left > 0 and took_s < self._timeout_s
