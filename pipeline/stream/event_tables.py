"""The two tables that a stream reads, from position to position: the bootstrap, then the requests.

Once the query has read all of the bootstrap that it began with, the bootstrap grows by what the
node's partitions change (`pipeline.stream.change`). Then requests go on beside it, by the selection
before the change. The batch that reads the change has what it newly selects from the version on
that the bootstrap does not cover, although the stream is beyond that version (`Offset.missed`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.delta.commit_reader import GoneCheck
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.tail import Position, appended
from group_coordinator.pipeline.stream.change import Change, taken_out
from group_coordinator.pipeline.stream.lingering import Patience, patience
from group_coordinator.pipeline.stream.offset import Offset, Selection
from group_coordinator.pipeline.stream.packed import AFTER_BOOTSTRAP, AFTER_MISSED, PACKED_SCHEMA
from group_coordinator.pipeline.stream.packing import MOST_GROWTH, pack_together, select_rows
from group_coordinator.pipeline.stream.request_pages import (
    RefusedRequests,
    read_pages,
    refuse_packed,
)
from group_coordinator.pipeline.tables.request_lanes import wanted_row_groups
from group_coordinator.schemas.tables import REQUESTS

# Pages of requests that take up to this much, bytes, are packed together with others.
_SMALL_BYTES = 1 << 18


class Page(NamedTuple):
    """Some events, packed or still to be packed (`pack_together`); they take up to `size` bytes."""

    events: pa.Table
    size: int
    patience: Patience = Patience.NONE


# Pages with the position after each; None at the beginning of a version.
_Pages = Iterator[tuple[Page | None, Position]]


class EventsGoneError(RuntimeError):
    """Events that the stream has not read were deleted; the message says what to do."""


class Input(Struct, frozen=True):
    """Which tables a stream reads, where a new streaming checkpoint begins, and how much at once.

    `run` is the number of this run of the query. `selection` says whose requests are wanted at
    first; the bootstrap has no others. `bootstrap_end` is the version after the last one that the
    bootstrap has when the query begins. A read waits for requests for `wait_ms`, and longer, up to
    `longest_wait_ms`, if the driver says in `wake_file` that no timer is due. For `linger_ms` see
    `pipeline.stream.lingering`.
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
    """The tables of one stream, and where the last batches were full."""

    def __init__(self, wanted: Input) -> None:
        self._input = wanted
        # The pages that a full batch left over in a table, and where the next batch begins in it: a
        # row group can be read on, but not from its middle.
        self._left_over: dict[str, tuple[Position, _Pages]] = {}
        self._gone_checks = {
            uri: GoneCheck(_files(uri)) for uri in (wanted.bootstrap, wanted.requests)
        }

    @property
    def is_full(self) -> bool:
        """Whether the last `take` left requests over."""
        return self._input.requests in self._left_over

    def take(
        self, start: Offset, end: Offset | None = None, first: int = 1
    ) -> tuple[list[Page], Offset]:
        """Return the events from `start` on, page by page, and where they end.

        All up to `end`; without `end`, as much as a batch may have. The first request has the
        number `first`. Raises EventsGoneError.
        """
        if end is None:
            return self._plan(start, first)
        found: list[Page] = []
        most = end.max_request_bytes or self._input.max_request_bytes
        self._advance(found, most, None, start.bootstrap, end.bootstrap)
        self._read_requests(found, most, end.selection, end.missed, start, end.requests, first)
        return found, end

    def _plan(self, start: Offset, first: int) -> tuple[list[Page], Offset]:
        """The events that a batch from `start` may have by now, and where they end."""
        wanted = self._input
        found: list[Page] = []
        most = wanted.max_request_bytes
        bootstrap, is_whole, change = self._advance(found, most, None, start.bootstrap, None)
        has_begun = start.run == wanted.run and start.bootstrap >= (wanted.bootstrap_end, 0)
        if not (is_whole or has_begun):
            planned = Offset(bootstrap, start.requests, wanted.run, start.selection, most)
            return found, planned
        selection = start.selection if has_begun else wanted.selection
        if change is not None:
            selection = change.selection
        if selection is not start.selection:
            # What was left over was selected as before.
            self._left_over.pop(wanted.requests, None)
        missed = selection.missed_by(start.selection, start.requests)
        selection = selection.since(start.requests.version)
        requests = self._read_requests(found, most, selection, missed, start, None, first)
        planned = Offset(bootstrap, requests, wanted.run, selection, most, missed)
        return found, planned

    def check_gone(self, at: Offset) -> None:
        """Raise EventsGoneError if what comes next was deleted, since a read would wait for ever.

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

    def _read_requests(
        self,
        found: list[Page],
        most: int,
        selection: Selection,
        missed: dict[int, int],
        start: Offset,
        end: Position | None,
        first: int,
    ) -> Position:
        """Add the missed requests and then those from `start` on; return the position after them.

        The missed ones are all there: of a partition that is claimed, what was written while the
        bootstrap got what loads its groups.
        """
        uri = self._input.requests
        first = AFTER_BOOTSTRAP if found else first
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
        self, found: list[Page], pages: _Pages, uri: str, at: Position, end: Position
    ) -> None:
        try:
            for page, after in pages:
                at = after
                if page is not None and page.events.num_rows:
                    found.append(page)
        except FileNotFoundError as error:
            raise _events_gone(uri, at.version) from error
        if at < end:
            raise _events_gone(uri, at.version)

    def _advance(
        self,
        found: list[Page],
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
            for page, after in found_events:
                at = after
                if page is None:
                    if change is not None:
                        self._left_over[uri] = at, found_events
                        break
                    continue
                if selection is None:
                    events, seen = taken_out(page.events)
                    page = Page(events, page.size)
                    if seen is not None and end is None and seen.run == self._input.run:
                        change = seen
                if page.events.num_rows:
                    found.append(page)
                pages += 1
                size += page.size
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
    ) -> _Pages:
        """The wanted requests from `start` on, numbered as rows are, page by page.

        `first` is the number of the first row; control events have the number 0. A large page is
        packed, which tells its size; a small one only together with others.
        """
        read = functools.partial(read_pages, most=most)
        number = first
        names = REQUESTS.schema.names
        wanted = functools.partial(_wanted, selection)
        for rows, after in appended(
            _files(uri), start, names, end, read, RefusedRequests(), wanted
        ):
            if rows is None:
                yield None, after
                continue
            partition_set = selection.at(after.version)
            mine = select_rows(rows, number, partition_set)
            number += rows.num_rows
            waits = Patience.NONE if partition_set is None else patience(mine)
            size = mine.nbytes * MOST_GROWTH
            if size > _SMALL_BYTES:
                (mine,) = pack_together([mine])
                size = mine.nbytes
            yield Page(mine, max(rows.nbytes, size), waits), after

    def _bootstrap_events(
        self, most: int, uri: str, start: Position, end: Position | None
    ) -> _Pages:
        """The bootstrap's events from `start` on, which are packed already, page by page."""
        for rows, after in appended(_files(uri), start, PACKED_SCHEMA.names, end):
            if rows is None:
                yield None, after
            else:
                events = rows.cast(PACKED_SCHEMA)
                yield Page(refuse_packed(events, most), rows.nbytes), after


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


_files = functools.lru_cache(maxsize=8)(open_files)
