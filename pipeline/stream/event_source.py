"""The stream's source, a Python Data Source of Spark: the bootstrap's events, then the requests.

The source reads a table as clients do (`pipeline.delta.tail`): version by version, each commit and
its files, beside the driver. Spark's own Delta source plans a query over the log and a scan over
the files for every batch: with ten small files a second it took 80 ms of a batch of 190, and each
further file cost more than waiting for it saved. Here a look for a new version takes 0.02 ms, and a
small file 2 ms.

A read waits for requests up to `trigger.interval.ms` and returns as soon as some come, so the
interval is the resolution of timers and no part of an answer's latency. Commits that have requests
of other nodes' groups alone begin no batch: one costs about as much for no request as for many.

The stream has one row for each group, or several for a group that has much: `group_id`, and in
`events` the group's packed events, one a line (`pipeline.stream.packing`). A batch takes all that
has gathered, up to `max.files.per.trigger` and `max.bytes.per.trigger`. Spark logs the end of a
batch before the batch runs, so a batch that is run again has the same events. The bootstrap comes
before all requests: a group is loaded before its requests are decided. The batch that has the end
of the bootstrap has requests too, for timers run in every batch, and heartbeats that were written
before it must renew their sessions first.

Once the query has read all of the bootstrap that it began with, the bootstrap grows by what the
node's partitions change (`pipeline.stream.change`). Then requests go on beside it, by the selection
before the change. The batch that reads the change has what it newly selects from the version on
that the bootstrap does not cover, although the stream is beyond that version (`Offset.missed`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from pipeline.clock import monotonic, sleep
from pipeline.delta.commit_reader import GoneCheck, open_files
from pipeline.delta.log import LogGone
from pipeline.delta.table import local_folder
from pipeline.delta.tail import Position, appended
from pipeline.stream.change import Change, taken_out
from pipeline.stream.offset import Offset, Selection, from_plain
from pipeline.stream.packed import (
    AFTER_BOOTSTRAP,
    AFTER_MISSED,
    PACKED_SCHEMA,
    STREAM_COLUMNS,
)
from pipeline.stream.packing import pack_rows
from pipeline.stream.request_pages import RefusedRequests, read_pages, refuse_packed
from pipeline.tables.request_lanes import wanted_row_groups
from pipeline.tables.store import table_uri
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.settings import CoordinatorSettings
    from pipeline.stream.bootstrap import Bootstrap

FORMAT = "group-coordinator-events"
STREAM_SCHEMA = pa.schema([(name, pa.string()) for name in STREAM_COLUMNS])

# Pages of packed events, each with the bytes that reading it took and the position after it; None
# at the beginning of a version.
_Events = Iterator[tuple[pa.Table | None, int, Position]]

_OPTION = "input"
_ALL = Selection()
# The time between two looks, s. A look takes 0.02 ms on a local disk. In an object store it is a
# request: after each look that finds nothing the time is doubled, up to the longest.
_LOOK_S = 0.002
_STORE_LOOK_S, _LONGEST_STORE_LOOK_S, _SLOWER = 0.02, 1.0, 2.0
# The sizes in characters at which a row of the stream, and an Arrow batch of such rows, are ended.
_ROW_CHARS = 1 << 20
_PIECE_CHARS = 4 << 20


class EventsGoneError(RuntimeError):
    """Events that the stream has not read were deleted; the message says what to do."""


class Input(Struct, frozen=True):
    """Which tables a stream reads, where a new streaming checkpoint begins, and how much at once.

    `run` is the number of this run of the query. `selection` says whose requests are wanted at
    first; the bootstrap has no others. `bootstrap_end` is the version after the last one that the
    bootstrap has when the query begins.
    """

    requests: str
    bootstrap: str
    bootstrap_version: int
    bootstrap_end: int
    first_version: int
    wait_ms: int
    max_files: int
    max_bytes: int
    max_request_bytes: int
    run: int = 0
    selection: Selection = Selection()


def read_events(
    spark: SparkSession,
    root: str,
    settings: CoordinatorSettings,
    bootstrap: Bootstrap,
    bootstrap_end: int,
    selection: Selection = _ALL,
    run: int = 0,
) -> DataFrame:
    """Stream the bootstrap and then the `requests` table: columns `group_id` and `events`.

    `bootstrap_end` is the version after the last one that the bootstrap's table has by now.
    `selection` says whose requests are wanted at first; `run` is the number of this run of the
    query.
    """
    spark.dataSource.register(EventSource)
    wanted = Input(
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
    )
    text = msgspec.json.encode(wanted).decode()
    events = spark.readStream.format(FORMAT).option(_OPTION, text).load()
    # If the stateful step has one partition too, Spark leaves the shuffle out.
    return events.coalesce(1)


class EventSource(DataSource):
    """The data source, for Spark."""

    @classmethod
    def name(cls) -> str:
        """What `readStream.format` calls it."""
        return FORMAT

    def schema(self) -> str:
        """`STREAM_SCHEMA` in Spark's notation."""
        return ", ".join(f"{name} string" for name in STREAM_COLUMNS)

    def simpleStreamReader(self, schema: StructType) -> EventReader:  # noqa: ARG002
        """The reader; Spark keeps it in a process of its own beside the driver."""
        return EventReader(msgspec.json.decode(self.options[_OPTION], type=Input))


class EventReader(SimpleDataSourceStreamReader):
    """Reads one stream's events from the positions that Spark keeps."""

    def __init__(self, wanted: Input) -> None:
        self._input = wanted
        self._is_store = local_folder(wanted.requests) is None
        self._look_s = _STORE_LOOK_S if self._is_store else _LOOK_S
        self._look_at = 0.0
        # The pages that a full batch left over in a table, and where the next batch begins in it: a
        # row group can be read on, but not from its middle.
        self._left_over: dict[str, tuple[Position, _Events]] = {}
        self._gone_checks = {
            uri: GoneCheck(_files(uri)) for uri in (wanted.bootstrap, wanted.requests)
        }

    def initialOffset(self) -> dict[str, Any]:
        """Where a new streaming checkpoint begins."""
        began = Position(self._input.bootstrap_version), Position(self._input.first_version)
        wanted = self._input
        return _plain(Offset(*began, wanted.run, wanted.selection, wanted.max_request_bytes))

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        """The events from `start` on, and where they end; waits for events up to `wait_ms`.

        Requests of other nodes' groups alone are no events: the wait goes on behind them. Raises
        EventsGoneError.
        """
        limit = monotonic() + self._input.wait_ms / 1000
        at = from_plain(start)
        while True:
            if self._is_store and self._look_at > limit:
                sleep(limit - monotonic())
                return iter(()), _plain(at)
            sleep(max(0.0, self._look_at - monotonic()))
            found, end = self._take(at)
            is_end = end == at
            if is_end:
                self._check_gone(at)
            self._pace(not is_end)
            if monotonic() >= limit or not (is_end or _has_only_others(found, at, end)):
                return iter(found), _plain(end)
            at = end

    def readBetweenOffsets(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """The events of a batch that is run again. Raises EventsGoneError."""
        found, _ = self._take(from_plain(start), from_plain(end))
        return iter(found)

    def _pace(self, has_news: bool) -> None:
        """Say when the next look is due: at once after news."""
        shortest = _STORE_LOOK_S if self._is_store else _LOOK_S
        if has_news:
            self._look_s, self._look_at = shortest, 0.0
            return
        self._look_at = monotonic() + self._look_s
        if self._is_store:
            self._look_s = min(_LONGEST_STORE_LOOK_S, self._look_s * _SLOWER)

    def _check_gone(self, at: Offset) -> None:
        """Raise EventsGoneError if what comes next was deleted: to wait for it would be for ever.

        A log is cleaned up while a node is stopped or suspended for longer than the log is kept.
        """
        for uri, version in (
            (self._input.bootstrap, at.bootstrap.version),
            (self._input.requests, at.requests.version),
        ):
            try:
                self._gone_checks[uri](version)
            except LogGone as gone:
                raise _events_gone(uri, version) from gone

    def _take(
        self, start: Offset, end: Offset | None = None
    ) -> tuple[list[pa.RecordBatch], Offset]:
        """A batch from `start`: all up to `end`; without `end`, as much as a batch may have."""
        wanted = self._input
        found: list[pa.Table] = []
        if end is not None:
            most = end.max_request_bytes or wanted.max_request_bytes
            self._advance(found, most, None, start.bootstrap, end.bootstrap)
            self._read_requests(found, most, end.selection, end.missed, start, end.requests)
            return stream_batches(found), end
        most = wanted.max_request_bytes
        bootstrap, is_whole, change = self._advance(found, most, None, start.bootstrap, None)
        has_begun = start.run == wanted.run and start.bootstrap >= (wanted.bootstrap_end, 0)
        if not (is_whole or has_begun):
            planned = Offset(bootstrap, start.requests, wanted.run, start.selection, most)
            return stream_batches(found), planned
        selection = start.selection if has_begun else wanted.selection
        if change is not None:
            selection = change.selection
        if selection is not start.selection:
            # What was left over was selected as before.
            self._left_over.pop(wanted.requests, None)
        missed = selection.missed_by(start.selection, start.requests)
        selection = selection.since(start.requests.version)
        requests = self._read_requests(found, most, selection, missed, start, None)
        planned = Offset(bootstrap, requests, wanted.run, selection, most, missed)
        return stream_batches(found), planned

    def _read_requests(
        self,
        found: list[pa.Table],
        most: int,
        selection: Selection,
        missed: dict[int, int],
        start: Offset,
        end: Position | None,
    ) -> Position:
        """Add the missed requests and then those from `start` on; return the position after them.

        The missed ones are all there: of a partition that is claimed, what was written while the
        bootstrap got what loads its groups.
        """
        uri = self._input.requests
        first = AFTER_BOOTSTRAP if found else 1
        if missed:
            later = {partition: version - 1 for partition, version in missed.items()}
            theirs = Selection(tuple(sorted(missed)), selection.of, later)
            at = Position(min(missed.values()))
            pages = self._request_events(most, theirs, first, uri, at, start.requests)
            self._read_all(found, pages, uri, at, start.requests)
            first = AFTER_MISSED
        position, _, _ = self._advance(found, most, selection, start.requests, end, first)
        return position

    def _read_all(
        self, found: list[pa.Table], pages: _Events, uri: str, at: Position, end: Position
    ) -> None:
        try:
            for events, _, after in pages:
                at = after
                if events is not None and events.num_rows:
                    found.append(events)
        except FileNotFoundError as error:
            raise _events_gone(uri, at.version) from error
        if at < end:
            raise _events_gone(uri, at.version)

    def _advance(
        self,
        found: list[pa.Table],
        most: int,
        selection: Selection | None,
        start: Position,
        end: Position | None,
        first: int = 1,
    ) -> tuple[Position, bool, Change | None]:
        """Add a table's events to `found`; return the position after them, and if they are all.

        They are all there is, or all up to `end`, unless a batch may not have more. The table is
        `requests`, whose first row has the number `first`, or the bootstrap if nothing is to be
        selected from it. A change in the bootstrap, which is returned too, counts as its end.
        Events of more than `most` bytes are refused.
        """
        uri = self._input.bootstrap if selection is None else self._input.requests
        read = functools.partial(self._bootstrap_events, most)
        if selection is not None:
            read = functools.partial(self._request_events, most, selection, first)
        change: Change | None = None
        is_whole = True
        pages, size, at = 0, 0, start
        begins, left_over = self._left_over.pop(uri, (None, iter(())))
        found_events = left_over if end is None and begins == start else read(uri, start, end)
        try:
            for events, taken, after in found_events:
                at = after
                if events is None:
                    if change is not None:
                        self._left_over[uri] = at, found_events
                        break
                    continue
                if selection is None:
                    events, seen = taken_out(events)
                    if seen is not None and end is None and seen.run == self._input.run:
                        change = seen
                if events.num_rows:
                    found.append(events)
                pages += 1
                size += taken
                if (
                    end is None
                    and change is None
                    and (pages >= self._input.max_files or size >= self._input.max_bytes)
                ):
                    self._left_over[uri] = at, found_events
                    is_whole = False
                    break
        except FileNotFoundError as error:
            raise _events_gone(uri, at.version) from error
        if end is not None and at < end:
            raise _events_gone(uri, at.version)
        return at, is_whole, change

    def _request_events(
        self,
        most: int,
        selection: Selection,
        first: int,
        uri: str,
        start: Position,
        end: Position | None,
    ) -> _Events:
        """The wanted requests from `start` on, packed and numbered as rows are, page by page.

        `first` is the number of the first row; control events have the number 0.
        """
        read = functools.partial(read_pages, most=most)
        number = first
        names = REQUESTS.schema.names
        wanted = functools.partial(_wanted, selection)
        for rows, after in appended(
            _files(uri), start, names, end, read, RefusedRequests(), wanted
        ):
            if rows is None:
                yield None, 0, after
                continue
            events = pack_rows(rows, number, selection.at(after.version))
            number += rows.num_rows
            yield events, max(rows.nbytes, events.nbytes), after

    def _bootstrap_events(
        self, most: int, uri: str, start: Position, end: Position | None
    ) -> _Events:
        """The bootstrap's events from `start` on, which are packed already, page by page."""
        for rows, after in appended(_files(uri), start, PACKED_SCHEMA.names, end):
            if rows is None:
                yield None, 0, after
            else:
                events = rows.cast(PACKED_SCHEMA)
                yield refuse_packed(events, most), rows.nbytes, after


def _has_only_others(found: Sequence[pa.RecordBatch], at: Offset, end: Offset) -> bool:
    """Whether from `at` to `end` there is nothing but requests that are not selected.

    A reader that goes on at `end` plans a batch from before `at`, and if the batch is run again,
    all of it is selected as its end says: so both must select the same, whatever the version.
    """
    is_same = at == replace(end, requests=at.requests)
    return is_same and not found and not end.selection.passed_over


def _wanted(
    selection: Selection, version: int, tags: Mapping[str, str | None] | None
) -> list[bool] | None:
    """Which row groups of a file of `requests` may have what is selected, as its tags tell."""
    return wanted_row_groups(tags, selection.at(version))


def _events_gone(uri: str, version: int) -> EventsGoneError:
    return EventsGoneError(
        f"version {version} of {uri} is gone before it was read. Delete the node's streaming"
        " checkpoint: the tables bring its groups back, and the requests that wait"
    )


def stream_batches(tables: list[pa.Table]) -> list[pa.RecordBatch]:
    """Join packed events to one row for each group, an event a line, in batches of bounded size."""
    if not tables:
        return []
    grouped = pa.concat_tables(tables).group_by("group_id", use_threads=False)
    lists = grouped.aggregate([("event", "list")]).combine_chunks()
    groups, events = lists.column("group_id"), lists.column("event_list")
    texts = pc.binary_join(events, "\n")
    if pc.max(pc.binary_length(texts)).as_py() > _ROW_CHARS:
        pairs = zip(groups.to_pylist(), events.to_pylist(), strict=True)
        rows = [(group, text) for group, lines in pairs for text in _bounded(lines)]
        groups, texts = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    table = pa.table([groups, texts], schema=STREAM_SCHEMA)
    pieces = -(-table.nbytes // _PIECE_CHARS)
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(
        max_chunksize=-(-len(table) // pieces)
    )
    return batches


def _bounded(lines: list[str]) -> Iterator[str]:
    """Join lines to texts that end at the first line beyond `_ROW_CHARS`."""
    gathered: list[str] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= _ROW_CHARS:
            yield "\n".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield "\n".join(gathered)


def _plain(offset: Offset) -> dict[str, Any]:
    """An offset for Spark, which compares offsets as JSON texts: the fields keep this order.

    Lists, not tuples: Spark also compares what `read` returned with what it reads from JSON.
    """
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(offset))
    return plain


_files = functools.lru_cache(maxsize=8)(open_files)
