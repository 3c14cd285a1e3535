"""One run of the streaming query: source -> stateful -> sink, for partitions that may change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.pipeline.stream.offset import Offset
    from group_coordinator.pipeline.stream.sink import Sink

log = logging.getLogger(__name__)

QUERY_NAME = "group-coordinator"
_BATCH_WAIT_S = 10.0
# Spark starts a Python process for a query's source and waits ten seconds for it, which no setting
# changes (`PythonWorkerFactory.createSimpleWorker`). On an overloaded machine the process takes
# longer to start, and the query fails with this message.
_SOURCE_IS_LATE = "Python worker failed to connect back"
_LATE_STARTS = 5


class QueryFailed(Failure):
    """The streaming query ended by itself; the message is the innermost reason."""


class Serving:
    """A running query and its sink.

    `begin` starts the query, here and again if its source did not start in time. `bootstrap_end` is
    the version after the last one that the bootstrap's table had at the start, and `run` the number
    of this run of the query.
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
        """Return once the query has taken in all of the bootstrap.

        `timeout_s` bounds the wait between two micro-batches, not the whole bootstrap: a large
        bootstrap takes many batches. Raises QueryFailed if the query ends, or if no batch ends
        within that time.
        """
        batches, limit = 0, monotonic() + timeout_s
        while not self.is_ready():
            self.check()
            if self.sink.batches > batches:
                batches, limit = self.sink.batches, monotonic() + timeout_s
            if monotonic() > limit:
                raise QueryFailed(f"no batch within {timeout_s:g} s")
            sleep(0.02)

    def change(self, batch: BatchSettings, gained: Collection[int]) -> None:
        """Decide by these settings from the next batch on; see `pipeline.node.engine`."""
        self.sink.change(batch, gained)

    def is_changed(self) -> bool:
        """Whether a batch has begun by the settings of the last `change`."""
        return self.sink.is_changed()

    def expect(self, version: int) -> None:
        """Be ready only once the bootstrap's table is taken in up to before this version."""
        self._bootstrap_end = version

    def is_ready(self) -> bool:
        """Whether the query has taken in all of the bootstrap, and so has every group of it."""
        ended = self._offset("endOffset")
        return ended is not None and ended.bootstrap >= (self._bootstrap_end, 0)

    def _offset(self, which: str) -> Offset | None:
        """Where the last batch began, "startOffset", or ended; None before the first."""
        progress = self.query.lastProgress
        return None if progress is None else offset_of(progress["sources"][0][which])

    def check(self) -> None:
        """Raise QueryFailed if the query has ended by itself, FencedError if others ended it.

        Raises TableReplacedError if one of the sink's tables is another one than it was. A query
        whose source did not start in time has done nothing, and begins anew.
        """
        if self.query.isActive:
            self.sink.check_same()
            return
        # If two coordinators use one streaming checkpoint, Spark fails one with an error about its
        # own log. Whether this one is fenced is asked first, because that is the reason.
        try:
            self.sink.check_epoch()
        except (DeltaError, OSError) as unread:
            # The tables cannot be read, which is why the query ended as well: its error says so.
            log.debug("the epoch cannot be checked: %s", unread)
        error = self.query.exception()
        if _SOURCE_IS_LATE in str(error) and self._late_starts < _LATE_STARTS:
            self._late_starts += 1
            log.warning("the source's Python process did not start in 10 s: the query begins anew")
            self.query = self._begin()
            return
        raise QueryFailed("the query was stopped" if error is None else innermost(str(error)))

    def progress(self) -> int:
        """How many batches have ended: one at least every `trigger.max.interval.ms`."""
        return self.sink.batches

    def consumed(self) -> int | None:
        """The version of `requests` that a restart may read again; None if it is not known."""
        began, ended = self._offset("startOffset"), self._offset("endOffset")
        if began is None or ended is None:
            return None
        return min([began.requests.version, *ended.missed.values()])

    def trim(self, version: int) -> int:
        """Delete the log of `requests` before a version; returns how many files."""
        try:
            return trim_log(self._requests, version)
        except (LogGone, DeltaError, OSError) as error:
            # A log that stays long only makes reading slower. If the root is gone, the query fails
            # and says so.
            log.warning("the log of requests was not trimmed: %s", error)
            return 0

    def stop(self) -> None:
        """Stop the query: between two batches if a batch ends within 10 s, at once otherwise.

        A batch that is cut off is run again by the next start; each table takes it once.
        """
        limit = monotonic() + _BATCH_WAIT_S
        before = self._last_committed()
        # The source may wait for seconds while there is nothing to do.
        self.sink.wake()
        # Just after a batch was committed the source only looks for requests: nothing is cut off.
        while self.query.isActive and self._last_committed() == before and monotonic() < limit:
            sleep(0.002)
        self.query.stop()
        if self.sink.timers is not None:
            self.sink.timers.stopped()
        self._end_timers()

    def abandon(self) -> None:
        """Stop the query even within a batch; nothing of it runs after that.

        Called before a failure is reported, so that what Spark logs of a batch that was cut off
        comes before the reason, not after it.
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
        # The source waits, for requests.
        .trigger(processingTime="0 seconds")
    )


def innermost(text: str) -> str:
    """Return the line that names the cause in the text of a failed query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The JVM's causes of a Python error come after it, and theirs after them.
    lines = [line.removeprefix("Caused by: ") for line in lines]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    chosen = errors[-1] if errors else lines[0]
    name, _, message = chosen.partition(":")
    return f"{name.rpartition('.')[2]}:{message}" if message else chosen
