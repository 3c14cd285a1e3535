"""The stream's two tables: first the bootstrap, which loads the node's groups, then `requests`.

Each table is read in pages of events; a page has the position after it.

When the node gains or releases offsets partitions, a `SelectionChange` is appended to the bootstrap
(`pipeline.stream.offset`). Until the stream reads it, the stream reads requests of the previous
partitions only. So the batch that reads the change also reads the requests of gained partitions
that earlier batches have skipped (`Offset.missed`), from the first version that the bootstrap does
not cover.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.delta import (
    GoneCheck,
    LogGone,
    Position,
    SameTable,
    TableAway,
    appended,
    open_files,
)
from group_coordinator.pipeline.stream.offset import (
    Offset,
    Selection,
    SelectionChange,
    split_change,
)
from group_coordinator.pipeline.stream.packed_events import (
    AFTER_BOOTSTRAP,
    AFTER_MISSED,
    MOST_GROWTH,
    PACKED_SCHEMA,
    pack_together,
    select_rows,
)
from group_coordinator.pipeline.stream.request_pages import (
    RefusedRequests,
    read_pages,
    refuse_packed,
)
from group_coordinator.pipeline.stream.waiting import least_linger
from group_coordinator.pipeline.tables import wanted_row_groups
from group_coordinator.schemas.apis import LingerMultiple
from group_coordinator.schemas.tables import REQUESTS

log = logging.getLogger(__name__)

# Pages of at most this size, bytes, are packed together with other pages.
_SMALL_BYTES = 1 << 18


class Page(NamedTuple):
    """Events, packed or still to be packed by `pack_together`; they take at most `size` bytes.

    `linger` is the shortest linger of its requests. A page of the bootstrap may begin with a
    `change`, which is not among the `events`.
    """

    events: pa.Table
    size: int
    linger: LingerMultiple = LingerMultiple.NONE
    change: SelectionChange | None = None


# Pages, each with the position after it. None marks the end of a table version.
Pages = Iterator[tuple[Page | None, Position]]

table_files = functools.lru_cache(maxsize=8)(open_files)


def request_pages(
    most: int,
    selection: Selection,
    first: int,
    uri: str,
    start: Position,
    end: Position | None,
) -> Pages:
    """Yield the selected requests from `start` on, page by page, with their row numbers.

    `most` is `max.request.size`, bytes. `first` is the number of the first row read; rows that are
    not selected are counted too. A large page is packed at once, to know its exact size.
    """
    read = functools.partial(read_pages, most=most)
    number = first
    names = REQUESTS.schema.names

    def wanted(version: int, tags: Mapping[str, str | None] | None) -> list[bool] | None:
        return wanted_row_groups(tags, selection.at(version))

    for rows, after in appended(
        table_files(uri), start, names, end, read, RefusedRequests(), wanted
    ):
        if rows is None:
            yield None, after
            continue
        partition_set = selection.at(after.version)
        mine = select_rows(rows, number, partition_set)
        number += rows.num_rows
        waits = LingerMultiple.NONE if partition_set is None else least_linger(mine)
        size = mine.nbytes * MOST_GROWTH
        if size > _SMALL_BYTES:
            (mine,) = pack_together([mine])
            size = mine.nbytes
        yield Page(mine, max(rows.nbytes, size), waits), after


def bootstrap_pages(most: int, uri: str, start: Position, end: Position | None) -> Pages:
    """Yield the packed events of the bootstrap from `start` on, page by page.

    Requests of more than `most` bytes are refused.
    """
    for rows, after in appended(table_files(uri), start, PACKED_SCHEMA.names, end):
        if rows is None:
            yield None, after
        else:
            events, change = split_change(rows.cast(PACKED_SCHEMA))
            yield Page(refuse_packed(events, most), rows.nbytes, change=change), after


class _TableReading(NamedTuple):
    uri: str
    pages: Callable[[Position, Position | None], Pages]


class EventsGoneError(RuntimeError):
    """Events were deleted before the stream read them."""


class SourceOptions(Struct, frozen=True):
    """Configuration of the source: its tables, the first position, and the limits of a batch.

    `bootstrap_end` is the version after the bootstrap's newest one when the query begins.
    `selection` names the partitions that the stream reads at first; `run` is the number of this
    run. A read waits for requests for `wait_ms`, or for up to `longest_wait_ms` if the driver's
    `wake_file` says that no timer is due.
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
    longest_wait_ms: int = 0
    wake_file: str = ""
    linger_ms: int = 0
    requests_table: int | None = None


class EventTables:
    """Reader of the stream's tables. It keeps the pages that a full batch has left unread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # By table: where the next batch begins, and its pages, if the last batch was full. Reading
        # can continue, but not begin, in the middle of a row group.
        self._left_over: dict[str, tuple[Position, Pages]] = {}
        # A position of an earlier run may be after the end of a table that was created again.
        number = options.requests_table
        self._same = same = SameTable(options.requests, at_once=True, number=number)
        self._gone_checks = {
            options.bootstrap: GoneCheck(table_files(options.bootstrap)),
            options.requests: GoneCheck(table_files(options.requests), same),
        }
        self._is_away = False

    @property
    def is_full(self) -> bool:
        """Whether the last `take` has left requests unread because its batch was full."""
        return self._options.requests in self._left_over

    def take(
        self, start: Offset, end: Offset | None = None, first: int = 1
    ) -> tuple[list[Page], Offset]:
        """Return the events from `start` on, page by page, and their end.

        They reach up to `end`, or without `end` as far as a batch's limits allow. The first request
        has the row number `first`. Raises EventsGoneError.
        """
        if end is None:
            return self._plan(start, first)
        found: list[Page] = []
        most = end.max_request_bytes or self._options.max_request_bytes
        self._left_over.clear()
        self._read_all(found, self._bootstrap(most), start.bootstrap, end.bootstrap)
        first = self._read_missed(found, most, end.selection, end.missed, start.requests, first)
        requests = self._requests(most, end.selection, first)
        self._read_all(found, requests, start.requests, end.requests)
        return found, end

    def _plan(self, start: Offset, first: int) -> tuple[list[Page], Offset]:
        """Return the available events of a new batch that begins at `start`, and their end."""
        options = self._options
        found: list[Page] = []
        most = options.max_request_bytes
        bootstrap, is_whole, change = self._read_on(found, self._bootstrap(most), start.bootstrap)
        has_begun = start.run == options.run and start.bootstrap >= (options.bootstrap_end, 0)
        if not (is_whole or has_begun):
            planned = Offset(bootstrap, start.requests, options.run, start.selection, most)
            return found, planned
        selection = start.selection if has_begun else options.selection
        if change is not None:
            selection = change.selection
        if selection is not start.selection:
            # The pages left unread were selected by the previous selection.
            self._left_over.pop(options.requests, None)
        missed = selection.missed_by(start.selection, start.requests)
        selection = selection.since(start.requests.version)
        first = self._read_missed(found, most, selection, missed, start.requests, first)
        reading = self._requests(most, selection, first)
        requests, _, _ = self._read_on(found, reading, start.requests)
        planned = Offset(bootstrap, requests, options.run, selection, most, missed)
        return found, planned

    def check_same(self, at: Offset) -> None:
        """Raise TableReplacedError if `requests` is not the table that was read up to `at`.

        The log of a table that was created again may already be longer than `at`, so its length
        shows nothing. The table is compared only at intervals. `check_gone` reports a missing
        table.
        """
        with suppress(TableAway):
            self._same.check_if_due(at.requests.version - 1)

    def check_gone(self, at: Offset) -> None:
        """Raise EventsGoneError if the next events were deleted: a read would wait for ever.

        This happens if a node is stopped or suspended for longer than a log is retained. Raises
        TableReplacedError if `requests` is another table, because the stream would skip its
        requests. A missing table is logged, and the stream waits for it.
        """
        for uri, version in (
            (self._options.bootstrap, at.bootstrap.version),
            (self._options.requests, at.requests.version),
        ):
            try:
                self._gone_checks[uri](version)
            except LogGone as gone:
                raise _events_gone(uri, version) from gone
            except TableAway as away:
                if not self._is_away:
                    log.warning("no requests are read: %s", away)
                self._is_away = True
                return
        self._is_away = False

    def _bootstrap(self, most: int) -> _TableReading:
        uri = self._options.bootstrap
        return _TableReading(uri, functools.partial(bootstrap_pages, most, uri))

    def _requests(self, most: int, selection: Selection, first: int) -> _TableReading:
        uri = self._options.requests
        return _TableReading(uri, functools.partial(request_pages, most, selection, first, uri))

    def _read_missed(
        self,
        found: list[Page],
        most: int,
        selection: Selection,
        missed: dict[int, int],
        end: Position,
        first: int,
    ) -> int:
        """Add the requests of gained partitions that earlier batches have skipped, up to `end`.

        They were written while the events that load the partitions' groups were added to the
        bootstrap. Returns the row number of the next request.
        """
        first = AFTER_BOOTSTRAP if found else first
        if not missed:
            return first
        later = {partition: version - 1 for partition, version in missed.items()}
        theirs = Selection(tuple(sorted(missed)), selection.of, later)
        at = Position(min(missed.values()))
        self._read_all(found, self._requests(most, theirs, first), at, end)
        return AFTER_MISSED

    def _read_all(
        self, found: list[Page], reading: _TableReading, at: Position, end: Position
    ) -> None:
        try:
            for page, after in reading.pages(at, end):
                at = after
                if page is not None and page.events.num_rows:
                    found.append(page)
        except FileNotFoundError as error:
            raise _events_gone(reading.uri, at.version) from error
        if at < end:
            raise _events_gone(reading.uri, at.version)

    def _read_on(
        self, found: list[Page], reading: _TableReading, at: Position
    ) -> tuple[Position, bool, SelectionChange | None]:
        """Add a table's events from `at` on, until the batch is full or the selection changes.

        Events up to the end of the change's commit are added, however many. Returns the position
        after them, whether all fitted, and the change of this run, if any. Changes of other runs
        are ignored. Raises EventsGoneError.
        """
        begins, left_over = self._left_over.pop(reading.uri, (None, iter(())))
        rest = left_over if begins == at else reading.pages(at, None)
        change: SelectionChange | None = None
        pages = size = 0
        try:
            for page, after in rest:
                at = after
                if page is None:
                    if change is None:
                        continue
                    self._left_over[reading.uri] = at, rest
                    break
                if page.change is not None and page.change.run == self._options.run:
                    change = page.change
                if page.events.num_rows:
                    found.append(page)
                pages += 1
                size += page.size
                is_full = pages >= self._options.max_files or size >= self._options.max_bytes
                if is_full and change is None:
                    self._left_over[reading.uri] = at, rest
                    return at, False, None
        except FileNotFoundError as error:
            raise _events_gone(reading.uri, at.version) from error
        return at, True, change


def _events_gone(uri: str, version: int) -> EventsGoneError:
    return EventsGoneError(
        f"version {version} of {uri} was deleted before it was read. Delete the node's streaming"
        " checkpoint: its groups and waiting requests are then loaded from the tables"
    )
