"""The streaming query's source: a Python data source that yields the bootstrap, then the requests.

The bootstrap is a table of events that load the node's groups into a new streaming checkpoint. It
is read before all requests, because a group must be loaded before its requests are decided. The
batch that reads its end also reads requests: timers run in every batch, so waiting heartbeats must
renew their sessions in it.

Spark runs the source in a process next to the driver. The source polls the table version by
version, as clients do (`pipeline.delta.tail`). Spark's own Delta source plans a scan for every
batch, which takes a large part of a batch of a few small files.

`read` blocks until there are requests, or until a timer is due (`pipeline.stream.timer_schedule`),
but for a timer at least `trigger.interval.ms`. A commit with requests only of other nodes' groups
begins no batch. A node that owns only some offsets partitions also lingers
(`pipeline.stream.waiting`).

A row of the stream has the columns `group_id` and `events`: packed events of the group, one a line
(`pipeline.stream.packed_events`). A batch takes all available events, up to `max.files.per.trigger`
and `max.bytes.per.trigger`. Spark logs the end of a batch before it runs the batch, so a repeated
batch has the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from group_coordinator.pipeline.clock import sleep
from group_coordinator.pipeline.delta import Position, local_folder
from group_coordinator.pipeline.stream.event_tables import EventTables, Page, SourceOptions
from group_coordinator.pipeline.stream.offset import Offset, Selection, from_plain
from group_coordinator.pipeline.stream.packed_events import (
    STREAM_COLUMNS,
    pack_together,
    stream_batches,
)
from group_coordinator.pipeline.stream.timer_schedule import WakeFile
from group_coordinator.pipeline.stream.waiting import Lingering, Waiting
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.apis import LingerMultiple
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.offset import Bootstrap

FORMAT = "group-coordinator-events"

_OPTION = "input"
# The step between the row numbers of two polls of one batch: more rows than a poll finds.
_ROWS_A_POLL = 10**12
_ALL = Selection()


def read_events(
    spark: SparkSession,
    root: str,
    settings: CoordinatorSettings,
    bootstrap: Bootstrap,
    bootstrap_end: int,
    selection: Selection = _ALL,
    run: int = 0,
    wake_file: str = "",
) -> DataFrame:
    """Return the stream of the bootstrap and then of `requests`, with columns `group_id`, `events`.

    `bootstrap` is the table of events that load the node's groups; `bootstrap_end` is the version
    after its newest one. `selection` names the offsets partitions that the stream reads at first.
    `run` is the number of this run of the query. `wake_file` is the path of the file in which the
    driver writes when timers are due, "" for none.
    """
    spark.dataSource.register(EventSource)
    options = source_options(root, settings, bootstrap, bootstrap_end, selection, run, wake_file)
    text = msgspec.json.encode(options).decode()
    events = spark.readStream.format(FORMAT).option(_OPTION, text).load()
    # If the stateful step has one partition too, Spark plans no shuffle.
    return events.coalesce(1)


def source_options(
    root: str,
    settings: CoordinatorSettings,
    bootstrap: Bootstrap,
    bootstrap_end: int,
    selection: Selection,
    run: int,
    wake_file: str,
) -> SourceOptions:
    """Return the source's configuration for a run of the query; see `read_events`."""
    return SourceOptions(
        requests=table_uri(root, REQUESTS),
        bootstrap=bootstrap.uri,
        bootstrap_version=bootstrap.version,
        bootstrap_end=bootstrap_end,
        first_version=bootstrap.first_version,
        wait_ms=settings.trigger_interval_ms,
        max_files=settings.max_files_per_trigger,
        max_bytes=settings.max_bytes_per_trigger,
        max_request_bytes=settings.max_request_size,
        run=run,
        selection=selection,
        longest_wait_ms=settings.trigger_max_interval_ms,
        wake_file=wake_file,
        linger_ms=settings.trigger_linger_ms,
        requests_table=bootstrap.requests_table,
    )


class EventSource(DataSource):
    """Python data source of the streaming query, as Spark registers it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `readStream.format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema, `STREAM_COLUMNS`, in Spark's notation."""
        return ", ".join(f"{name} string" for name in STREAM_COLUMNS)

    def simpleStreamReader(self, schema: StructType) -> EventReader:  # noqa: ARG002
        """Return the reader, which Spark runs in a separate process next to the driver."""
        return EventReader(msgspec.json.decode(self.options[_OPTION], type=SourceOptions))


class EventReader(SimpleDataSourceStreamReader):
    """Reader of the source's events; Spark stores the offsets between its reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._tables = EventTables(options)
        self._waiting: Waiting | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new streaming checkpoint begins."""
        began = Position(self._options.bootstrap_version), Position(self._options.first_version)
        options = self._options
        return _plain(Offset(*began, options.run, options.selection, options.max_request_bytes))

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        """Wait for events or a due timer; return the events from `start` on, and the next offset.

        Raises EventsGoneError if unread events were deleted.
        """
        search = self.search(start)
        while (found := search.poll()) is None:
            sleep(search.pause_s())
        return found

    def search(self, start: dict[str, Any]) -> Search:
        """Begin a read from `start` that the caller polls. Only the newest read may be polled."""
        if self._waiting is None:
            # Created late, because Spark also makes readers that never wait, in other processes.
            self._waiting = _waiting(self._options)
        options = self._options
        lingering = Lingering(
            options.linger_ms, options.wait_ms, options.max_bytes // 2, self._tables.is_full
        )
        return Search(self._tables, self._waiting, lingering, from_plain(start))

    def readBetweenOffsets(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Return the events of a repeated batch. Raises EventsGoneError if they were deleted."""
        found, _ = self._tables.take(from_plain(start), from_plain(end))
        return _stream_batches(found)


def _stream_batches(found: Sequence[Page]) -> Iterator[pa.RecordBatch]:
    return iter(stream_batches(pack_together([page.events for page in found])))


def _waiting(options: SourceOptions) -> Waiting:
    wake_file = WakeFile.open(options.wake_file) if options.wake_file else None
    is_store = local_folder(options.requests) is None
    return Waiting(options.wait_ms, options.longest_wait_ms, is_store, wake_file)


class Search:
    """One read of the source: it polls the tables until it has the events of a batch.

    A commit with requests only of other nodes' groups does not end the read. Requests that may wait
    do not end it either, as long as `lingering` allows.
    """

    def __init__(
        self, tables: EventTables, waiting: Waiting, lingering: Lingering, start: Offset
    ) -> None:
        self._tables = tables
        self._waiting = waiting
        self._lingering = lingering
        self._start = self._at = start
        self._first = 1
        self._found: list[Page] = []
        waiting.begin()

    def poll(self) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]] | None:
        """Poll the tables if it is due; return a batch's events and end offset, None to wait.

        Raises EventsGoneError if unread events were deleted.
        """
        waiting = self._waiting
        is_waiting = self._poll() if waiting.is_poll_due() else True
        if is_waiting and not waiting.is_over():
            return None
        waiting.end()
        return _stream_batches(self._found), _plain(self._at)

    def _poll(self) -> bool:
        """Add the available events to the next batch; return whether to wait for more."""
        at = self._at
        found, end = self._tables.take(at, first=self._first)
        has_news = end != at
        if has_news:
            self._tables.check_same(at)
        else:
            self._tables.check_gone(at)
        self._waiting.polled(has_news)
        continues = not has_news or _may_continue(at, end)
        if self._found and not continues:
            # The new selection applies to the whole batch, so all its events are read again.
            # Otherwise the groups of a gained partition would wait for one more batch.
            self._found, self._at = self._tables.take(self._start)
            return False
        self._at = end
        self._first += _ROWS_A_POLL
        self._found += found
        if not (continues and self._found):
            return continues
        size = sum(page.size for page in self._found)
        linger = min((page.linger for page in found), default=LingerMultiple.HEARTBEATS)
        if self._tables.is_full:
            linger = LingerMultiple.NONE
        lingers = self._lingering.goes_on(linger, end.selection, size)
        if lingers:
            self._waiting.delay_poll()
        return lingers

    def pause_s(self) -> float:
        """Return the time until the next poll, s."""
        return self._waiting.pause_s()


def _may_continue(at: Offset, end: Offset) -> bool:
    """Whether a batch that has read `at` may also read up to `end`.

    If the batch is repeated, the selection in its end offset applies to all of it. So both offsets
    must select the same requests of every version.
    """
    return at == replace(end, requests=at.requests) and not end.selection.passed_over


def _plain(offset: Offset) -> dict[str, Any]:
    """Return an offset as plain values for Spark.

    Spark compares offsets as JSON texts, so the order of fields is fixed. Tuples become lists,
    because Spark also compares the result of `read` with an offset decoded from JSON.
    """
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(offset))
    return plain
