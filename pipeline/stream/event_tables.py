"""The two tables that a stream reads by positions: its bootstrap first, then `requests`.

The bootstrap is the table of events that load the node's groups into a new streaming checkpoint.
Each table is read in pages of events. A page has the position after it.

Once the query has read the bootstrap that it began with, each change of the node's partitions is
appended to the bootstrap (`pipeline.stream.selection`). Meanwhile the stream continues to read
requests by its previous selection. The batch that reads a change also reads the requests of newly
selected partitions from the first version that the bootstrap does not cover. It does so although
the stream's position is after that version (`Offset.missed`).
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
from group_coordinator.pipeline.stream.offset import Offset
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
from group_coordinator.pipeline.stream.selection import Selection, SelectionChange, split_change
from group_coordinator.pipeline.stream.waiting import least_linger
from group_coordinator.pipeline.tables import wanted_row_groups
from group_coordinator.schemas.apis import LingerMultiple
from group_coordinator.schemas.tables import REQUESTS

log = logging.getLogger(__name__)

# Pages of requests of at most this size, bytes, are packed together with other pages.
_SMALL_BYTES = 1 << 18


class Page(NamedTuple):
    """Events, packed or still to be packed by `pack_together`; they take at most `size` bytes.

    `linger` is the smallest linger of the page's requests. A page of the bootstrap may begin with a
    `change`, which is not among the `events`.
    """

    events: pa.Table
    size: int
    linger: LingerMultiple = LingerMultiple.NONE
    change: SelectionChange | None = None


# Pages, each with the position after it. After a version comes None, with the position of the next
# version.
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
    """Yield the selected requests from `start` on, page by page, with their numbers.

    `most` is `max.request.size`, bytes. `first` is the number of the first row that is read; rows
    that are not selected are numbered as well. Control events have the number 0. A large page is
    packed at once, because packing shows its exact size. A small page is packed later, together
    with others.
    """
    read = functools.partial(read_pages, most=most)
    number = first
    names = REQUESTS.schema.names
    wanted = functools.partial(_wanted, selection)
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
    """Yield the events of the bootstrap's table from `start` on, page by page.

    The table has packed events already. Requests of more than `most` bytes are refused.
    """
    for rows, after in appended(table_files(uri), start, PACKED_SCHEMA.names, end):
        if rows is None:
            yield None, after
        else:
            events, change = split_change(rows.cast(PACKED_SCHEMA))
            yield Page(refuse_packed(events, most), rows.nbytes, change=change), after


def _wanted(
    selection: Selection, version: int, tags: Mapping[str, str | None] | None
) -> list[bool] | None:
    """Return which row groups of a file of `requests` may have selected requests, by its tags."""
    return wanted_row_groups(tags, selection.at(version))


class _TableReading(NamedTuple):
    """A table, and the function that reads its pages between two positions (None: to the end)."""

    uri: str
    pages: Callable[[Position, Position | None], Pages]


class EventsGoneError(RuntimeError):
    """Unread events of the stream were deleted; the message says what to do."""


class SourceOptions(Struct, frozen=True):
    """Configuration of a source: its tables, where a new checkpoint begins, and a batch's limits.

    `run` is the number of this run of the query. `selection` is the initial selection of requests;
    the bootstrap has no others. `bootstrap_end` is the version after the newest one that the
    bootstrap has when the query begins. A read waits for requests for `wait_ms`. It waits longer,
    up to `longest_wait_ms`, if the driver writes in `wake_file` that no timer is due. For
    `linger_ms` see `pipeline.stream.waiting`.
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


class EventTables:
    """The tables of one stream, and the pages that full batches left unread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # For each table in which a batch was full: where the next batch begins, and the pages from
        # there. Reading of a row group can continue, but cannot begin in its middle.
        self._left_over: dict[str, tuple[Position, Pages]] = {}
        # A position of an earlier start may be beyond the end of a table that was created again.
        self._same = same = SameTable(options.requests, at_once=True)
        self._gone_checks = {
            options.bootstrap: GoneCheck(table_files(options.bootstrap)),
            options.requests: GoneCheck(table_files(options.requests), same),
        }
        self._is_away = False

    @property
    def is_full(self) -> bool:
        """Whether the last `take` left requests unread."""
        return self._options.requests in self._left_over

    def take(
        self, start: Offset, end: Offset | None = None, first: int = 1
    ) -> tuple[list[Page], Offset]:
        """Return the events from `start` on, page by page, and their end.

        Returns all events up to `end`; without `end`, as many as a batch may have. The first
        request has the number `first`. Raises EventsGoneError.
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
        """Return the available events of a batch that begins at `start`, and their end."""
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
        """Raise TableReplacedError if `requests` is another table than was read up to `at`.

        The log of a table that was made again may be longer than `at` when a suspended stream reads
        on. Compares only if it is due. A table that is missing is reported by `check_gone`.
        """
        with suppress(TableAway):
            self._same.check_if_due(at.requests.version - 1)

    def check_gone(self, at: Offset) -> None:
        """Raise EventsGoneError if the next events were deleted: a read would wait for ever.

        This happens if a node is stopped or suspended for longer than a log is retained. Raises
        TableReplacedError if `requests` is another table, because its requests would be skipped.
        The stream waits for a table that is missing.
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
        """Return the bootstrap; its requests of more than `most` bytes are refused."""
        uri = self._options.bootstrap
        return _TableReading(uri, functools.partial(bootstrap_pages, most, uri))

    def _requests(self, most: int, selection: Selection, first: int) -> _TableReading:
        """Return the requests of a selection; `first` is the number of the first row."""
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
        """Add the missed requests, up to `end`; return the number of the first request after them.

        These are requests of newly claimed partitions. They were written while the events that load
        the partitions' groups were added to the bootstrap.
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
        """Add all events of a table between two positions. Raises EventsGoneError."""
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
        """Add a table's events from a position on, as many as a batch may have.

        Returns the position after them, False if the batch is full before a change, and the change.
        The events end with the commit of a change for this run, and the next batch begins with the
        version after it. Changes for other runs are ignored. Raises EventsGoneError.
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
