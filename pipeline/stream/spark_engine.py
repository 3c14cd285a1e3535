"""Spark as the engine of a coordinator node (`pipeline.node.stream_engine.StreamEngine`)."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from msgspec.structs import replace
from py4j.protocol import Py4JError

from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.delta import LogGone, open_delta, trim_log
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session.checkpoint_files import (
    delete_checkpoint,
    last_planned,
    move,
    planned_ms,
    planned_offset,
    query_id,
    read_text_file,
    write_text_file,
)
from group_coordinator.pipeline.session.checkpoint_location import hadoop_uri
from group_coordinator.pipeline.stream.event_source import read_events
from group_coordinator.pipeline.stream.offset import Planned, offset_of
from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.stream.stateful import answer
from group_coordinator.pipeline.stream.timer_schedule import (
    TIMERS_FILE,
    TimerWatch,
    restored_schedule,
)
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.coordinator.signatures import RequestKey
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.offset import Bootstrap, Offset, Selection
    from group_coordinator.pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)
QUERY_NAME = "group-coordinator"
_BATCH_WAIT_S = 10.0
# Spark waits ten seconds for the Python process of a query's source, which no setting changes
# (`PythonWorkerFactory.createSimpleWorker`). On an overloaded machine the process starts later, and
# the query fails with this message.
_SOURCE_IS_LATE = "Python worker failed to connect back"
_LATE_STARTS = 5


class SparkEngine:
    """Runner of a node's streaming query (source, stateful function, sink) on a Spark session.

    `make_machine` makes, in each worker, the machine that decides. `keys` verify the principals of
    requests; None accepts every principal. `query` is the newest query.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        settings: CoordinatorSettings,
        make_machine: MachineFactory = BatchMachine,
        keys: Sequence[RequestKey] | None = None,
    ) -> None:
        self.query: SparkQuery | None = None
        self._spark = spark
        self._root = root
        self._settings = settings
        self._make_machine = make_machine
        self._keys = None if keys is None else Signatures(keys).fingerprints

    def last_planned(self, checkpoint: str) -> Planned | None:
        """Return the newest batch that a streaming checkpoint has planned, if any."""
        found = last_planned(self._spark, checkpoint)
        return None if found is None else Planned(*found, query_id(self._spark, checkpoint))

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint, or a folder of them, if it exists."""
        delete_checkpoint(self._spark, checkpoint)

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder with its streaming checkpoint, at once; return False on failure."""
        return move(self._spark, folder, target)

    def begin(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        selection: Selection,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> SparkQuery:
        """Begin a query; see `pipeline.node.stream_engine.StreamEngine.begin`."""
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
        self.query = SparkQuery(query.start, sink, self._root, bootstrap_end, run)
        return self.query

    def _sink(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> tuple[Sink, int]:
        offset_of_batch = functools.partial(planned_offset, self._spark, checkpoint)
        # The bootstrap's folder is one that Python can reach.
        beside = f"{bootstrap.uri.rpartition('/')[0]}/{checkpoint.rpartition('/')[2]}"
        pinned = PinnedSettings(self._root, beside, batch, planned, epoch, offset_of_batch)
        kept = None if planned is None else read_text_file(self._spark, checkpoint, TIMERS_FILE)
        schedule = restored_schedule(planned, kept, self._settings.trigger_interval_ms, clock_ms())
        time_of_batch = functools.partial(planned_ms, self._spark, checkpoint)
        timers = TimerWatch(
            schedule,
            time_of_batch,
            functools.partial(write_text_file, self._spark, checkpoint, TIMERS_FILE),
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


class QueryFailed(Failure):
    """The streaming query ended by itself; the message names the cause."""


class SparkQuery:
    """A running query and its sink.

    `begin` starts the query. `bootstrap_end` is the version that follows the newest version of the
    bootstrap at the start. `run` is the number of this run of the query.
    """

    def __init__(
        self,
        begin: Callable[[], StreamingQuery],
        sink: Sink,
        root: str,
        bootstrap_end: int,
        run: int = 0,
    ) -> None:
        self.query = begin()
        self.sink = sink
        self.run = run
        self._begin = begin
        self._late_starts = 0
        self._bootstrap_end = bootstrap_end
        self._requests = table_uri(root, REQUESTS)

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Return once the query has read the whole bootstrap, which loads its groups.

        Raises QueryFailed if the query ends, or if no batch ends for `timeout_s`. The whole
        bootstrap may take many batches, so longer.
        """
        batches, limit = 0, monotonic() + timeout_s
        while not self.is_ready():
            self.check()
            if self.sink.batches > batches:
                batches, limit = self.sink.batches, monotonic() + timeout_s
            if monotonic() > limit:
                raise QueryFailed(f"the query completed no batch within {timeout_s:g} s")
            sleep(0.02)

    def change(self, batch: BatchSettings, gained: Collection[int]) -> None:
        """Use these settings from the next batch on; see `pipeline.node.stream_engine`."""
        self.sink.change(batch, gained)

    def is_changed(self) -> bool:
        """Whether a batch has begun with the settings of the last `change`."""
        return self.sink.is_changed()

    def expect(self, version: int) -> None:
        """Make `is_ready` wait until the bootstrap was read up to `version`, exclusive."""
        self._bootstrap_end = version

    def is_ready(self) -> bool:
        """Whether the query has read the whole bootstrap, so each of its groups is loaded."""
        ended = self._offset("endOffset")
        return ended is not None and ended.bootstrap >= (self._bootstrap_end, 0)

    def _offset(self, which: str) -> Offset | None:
        """Return "startOffset" or "endOffset" of the last batch, None before the first batch."""
        progress = self.query.lastProgress
        return None if progress is None else offset_of(progress["sources"][0][which])

    def check(self) -> None:
        """Raise QueryFailed if the query has ended by itself, FencedError if this node is fenced.

        Raises TableReplacedError if one of the sink's tables was replaced. A query that failed
        because its source started too late has done nothing, and is started again.
        """
        if self.query.isActive:
            self.sink.check_same()
            return
        # If two coordinators use one streaming checkpoint, Spark fails one with an error about its
        # log. The cause is fencing, so the epoch is checked first.
        try:
            self.sink.check_epoch()
        except (DeltaError, OSError) as unread:
            # The tables cannot be read, and the query's own error says so.
            log.debug("the epoch cannot be checked: %s", unread)
        error = self.query.exception()
        if _SOURCE_IS_LATE in str(error) and self._late_starts < _LATE_STARTS:
            self._late_starts += 1
            log.warning(
                "the source's Python process did not start in 10 s: the query is started again"
            )
            self.query = self._begin()
            return
        raise QueryFailed("the query was stopped" if error is None else root_cause(str(error)))

    def progress(self) -> int:
        """Return how many batches have ended; one ends at least every `trigger.max.interval.ms`."""
        return self.sink.batches

    def consumed(self) -> int | None:
        """Return the first version of `requests` that a restart may read, None if unknown."""
        began, ended = self._offset("startOffset"), self._offset("endOffset")
        if began is None or ended is None:
            return None
        return min([began.requests.version, *ended.missed.values()])

    def trim(self, version: int) -> int:
        """Delete the log of `requests` before a version; return the number of deleted files."""
        try:
            return trim_log(self._requests, version)
        except (LogGone, DeltaError, OSError) as error:
            # A long log only makes reading slower. If the root is missing, the query reports it.
            log.warning("the log of requests was not trimmed: %s", error)
            return 0

    def stop(self) -> None:
        """Stop the query, if possible between two batches.

        It waits at most 10 s for the end of a batch, and otherwise interrupts the batch.
        The next start repeats an interrupted batch; each table takes its rows once.
        """
        limit = monotonic() + _BATCH_WAIT_S
        before = self._last_committed()
        # An idle source may wait for seconds.
        self.sink.wake()
        # Just after a batch, the source only polls for requests, so no batch is interrupted.
        while self.query.isActive and self._last_committed() == before and monotonic() < limit:
            sleep(0.002)
        self.query.stop()
        if self.sink.timers is not None:
            self.sink.timers.stopped()
        self._end_timers()

    def abandon(self) -> None:
        """Stop the query even within a batch.

        A failure is reported afterwards, so that Spark's messages about the interrupted batch come
        before the reason.
        """
        try:
            self.query.stop()
        except (Py4JError, OSError) as gone:
            log.debug("the query ended with its JVM: %s", gone)
        self._end_timers()

    def _end_timers(self) -> None:
        if self.sink.timers is not None:
            self.sink.timers.end()

    def _last_committed(self) -> int:
        progress = self.query.lastProgress
        return -1 if progress is None else progress["batchId"]


def to_sink(answers: DataFrame, sink: Sink, checkpoint: str) -> DataStreamWriter:
    """Return the query that writes answers to a sink, to be started at its streaming checkpoint."""
    return (
        answers.writeStream.foreachBatch(sink)
        .queryName(QUERY_NAME)
        .option("checkpointLocation", checkpoint)
        # The source itself waits for requests.
        .trigger(processingTime="0 seconds")
    )


def root_cause(text: str) -> str:
    """Return the line that names the cause in the text of a failed query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The JVM names causes after the Python error, each after the error that it caused.
    lines = [line.removeprefix("Caused by: ") for line in lines]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    chosen = errors[-1] if errors else lines[0]
    name, _, message = chosen.partition(":")
    return f"{name.rpartition('.')[2]}:{message}" if message else chosen
