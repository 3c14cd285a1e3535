"""One run of the streaming query: source -> stateful -> sink, for a fixed set of partitions."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from pipeline.delta.log_trim import trim_log
from pipeline.delta.table import local_folder, open_delta
from pipeline.errors import Failure
from pipeline.stream.event_source import offset_of, read_events
from pipeline.stream.sink import Sink
from pipeline.stream.stateful import answer
from pipeline.tables.store import table_uri
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from coordinator.group.partition import PartitionSet
    from pipeline.settings import CoordinatorSettings
    from pipeline.stream.bootstrap import Bootstrap
    from pipeline.stream.event_source import Offset
    from pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)

QUERY_NAME = "group-coordinator"
_BATCH_WAIT_S = 10.0


class QueryFailed(Failure):
    """The streaming query ended by itself; the message is the innermost reason."""


class Serving:
    """A running query and its sink; `bootstrap_end` is the next version of its table."""

    def __init__(self, query: StreamingQuery, sink: Sink, root: str, bootstrap_end: int) -> None:
        self.query = query
        self.sink = sink
        self._bootstrap_end = bootstrap_end
        self._requests = local_folder(table_uri(root, REQUESTS))

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Return once all of the bootstrap was taken in; raises QueryFailed, also if it takes
        longer.

        The time is between two batches: a large bootstrap may take many.
        """
        batches, limit = 0, time.monotonic() + timeout_s
        while not self.is_ready():
            self.check()
            if self.sink.batches > batches:
                batches, limit = self.sink.batches, time.monotonic() + timeout_s
            if time.monotonic() > limit:
                raise QueryFailed(f"no batch within {timeout_s:g} s")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Whether all of the bootstrap was taken in: every group is there that shall be."""
        ended = self._offset("endOffset")
        return ended is not None and ended.bootstrap >= (self._bootstrap_end, 0)

    def _offset(self, which: str) -> Offset | None:
        """Where the last batch began, "startOffset", or ended; None before the first."""
        progress = self.query.lastProgress
        return None if progress is None else offset_of(progress["sources"][0][which])

    def check(self) -> None:
        """Raise QueryFailed if the query has ended by itself, FencedError if others ended it."""
        if self.query.isActive:
            return
        # Two coordinators on one checkpoint also trip over Spark's own log; this says why.
        try:
            self.sink.check_epoch()
        except (DeltaError, OSError) as unread:
            # Where the tables cannot be read, that is why the query ended.
            log.debug("the epoch cannot be checked: %s", unread)
        error = self.query.exception()
        raise QueryFailed("the query was stopped" if error is None else innermost(str(error)))

    def consumed(self) -> int | None:
        """The version of `requests` that a restart may read again; None if it is not known."""
        began = self._offset("startOffset")
        return None if began is None else began.requests.version

    def trim(self, version: int) -> int:
        """Delete the log of `requests` before a version; returns how many files."""
        if self._requests is None:
            return 0
        try:
            return trim_log(self._requests.resolve(), version)
        except OSError as error:
            # A longer log is slower, not wrong; if the root is gone, the query will say so.
            log.warning("the log of requests was not trimmed: %s", error)
            return 0

    def stop(self) -> None:
        """Stop the query, between two batches if one ends soon.

        A batch that is cut off is run again, and written once, by the next start.
        """
        limit = time.monotonic() + _BATCH_WAIT_S
        before = self._last_committed()
        # Batches follow each other; just after a commit the next one is still looking for requests.
        while self.query.isActive and self._last_committed() == before and time.monotonic() < limit:
            time.sleep(0.002)
        self.query.stop()

    def abandon(self) -> None:
        """Stop the query, a batch under way or not; nothing of it runs after that.

        What Spark has to say of a batch that was cut off comes before the reason, not after it.
        """
        try:
            self.query.stop()
        except (Py4JError, OSError) as gone:
            log.debug("the query ended with its JVM: %s", gone)

    def _last_committed(self) -> int:
        progress = self.query.lastProgress
        return -1 if progress is None else progress["batchId"]


def serve(
    spark: SparkSession,
    root: str,
    settings: CoordinatorSettings,
    make_machine: MachineFactory,
    sink: Sink,
    checkpoint: str,
    bootstrap: Bootstrap,
    partition_set: PartitionSet | None,
) -> Serving:
    """Begin the query, at its checkpoint or its bootstrap; `partition_set` None: all."""
    query = (
        answer(read_events(spark, root, settings, bootstrap, partition_set), make_machine)
        .writeStream.foreachBatch(sink)
        .queryName(QUERY_NAME)
        .option("checkpointLocation", checkpoint)
        # The source waits, for requests.
        .trigger(processingTime="0 seconds")
        .start()
    )
    return Serving(query, sink, root, open_delta(bootstrap.uri).version() + 1)


def innermost(text: str) -> str:
    """Return the line that names the cause in the text of a failed query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The JVM's causes of a Python error come after it, and theirs after them.
    lines = [line.removeprefix("Caused by: ") for line in lines]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    chosen = errors[-1] if errors else lines[0]
    name, _, message = chosen.partition(":")
    return f"{name.rpartition('.')[2]}:{message}" if message else chosen
