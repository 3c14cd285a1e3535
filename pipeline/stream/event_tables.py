"""The two tables that a stream reads, from position to position: the bootstrap, then the requests.

Once the query has read all of the bootstrap that it began with, the bootstrap grows by what the
node's partitions change (`pipeline.stream.change`). Then requests go on beside it, by the selection
before the change. The batch that reads the change has what it newly selects from the version on
that the bootstrap does not cover, although the stream is beyond that version (`Offset.missed`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from group_coordinator.pipeline.delta.commit_reader import GoneCheck
from group_coordinator.pipeline.delta.identity import SameTable, TableAway
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.tail import Position
from group_coordinator.pipeline.stream.change import SelectionChange
from group_coordinator.pipeline.stream.event_pages import (
    Page,
    Pages,
    bootstrap_pages,
    request_pages,
    table_files,
)
from group_coordinator.pipeline.stream.offset import Offset, Selection
from group_coordinator.pipeline.stream.packed import AFTER_BOOTSTRAP, AFTER_MISSED

log = logging.getLogger(__name__)


class _TableReading(NamedTuple):
    """A table, and the pages of its events between two positions; the second None: to the end."""

    uri: str
    pages: Callable[[Position, Position | None], Pages]


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
        self._left_over: dict[str, tuple[Position, Pages]] = {}
        # A position of an earlier start may be beyond the end of a table that was made anew.
        same = SameTable(wanted.requests, at_once=True)
        self._gone_checks = {
            wanted.bootstrap: GoneCheck(table_files(wanted.bootstrap)),
            wanted.requests: GoneCheck(table_files(wanted.requests), same),
        }
        self._is_away = False

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
        self._left_over.clear()
        self._read_all(found, self._bootstrap(most), start.bootstrap, end.bootstrap)
        first = self._read_missed(found, most, end.selection, end.missed, start.requests, first)
        requests = self._requests(most, end.selection, first)
        self._read_all(found, requests, start.requests, end.requests)
        return found, end

    def _plan(self, start: Offset, first: int) -> tuple[list[Page], Offset]:
        """The events that a batch from `start` may have by now, and where they end."""
        wanted = self._input
        found: list[Page] = []
        most = wanted.max_request_bytes
        bootstrap, is_whole, change = self._read_on(found, self._bootstrap(most), start.bootstrap)
        has_begun = start.run == wanted.run and start.bootstrap >= (wanted.bootstrap_end, 0)
        if not (is_whole or has_begun):
            planned = Offset(bootstrap, start.requests, wanted.run, start.selection, most)
            return found, planned
        selection = start.selection if has_begun else wanted.selection
        if change is not None:
            selection = change.selection
        if selection is not start.selection:
            # What was left over was read by the selection before.
            self._left_over.pop(wanted.requests, None)
        missed = selection.missed_by(start.selection, start.requests)
        selection = selection.since(start.requests.version)
        first = self._read_missed(found, most, selection, missed, start.requests, first)
        reading = self._requests(most, selection, first)
        requests, _, _ = self._read_on(found, reading, start.requests)
        planned = Offset(bootstrap, requests, wanted.run, selection, most, missed)
        return found, planned

    def check_gone(self, at: Offset) -> None:
        """Raise EventsGoneError if what comes next was deleted, since a read would wait for ever.

        Raises TableReplacedError, since the requests of another table would be passed over. A table
        that is away is waited for. A log is cleaned up while a node is stopped or suspended for
        longer than the log is kept.
        """
        for uri, version in (
            (self._input.bootstrap, at.bootstrap.version),
            (self._input.requests, at.requests.version),
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
        """The bootstrap; its requests of more than `most` bytes are refused."""
        uri = self._input.bootstrap
        return _TableReading(uri, functools.partial(bootstrap_pages, most, uri))

    def _requests(self, most: int, selection: Selection, first: int) -> _TableReading:
        """The requests of a selection, the first row's number being `first`."""
        uri = self._input.requests
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

        They are those of a partition that is claimed which were written while the bootstrap got
        what loads its groups.
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

        Returns the position after them, whether there are no more, and the change at which they
        end, if it is for this run: the next batch begins with the version after it. Raises
        EventsGoneError.
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
                if page.change is not None and page.change.run == self._input.run:
                    change = page.change
                if page.events.num_rows:
                    found.append(page)
                pages += 1
                size += page.size
                is_full = pages >= self._input.max_files or size >= self._input.max_bytes
                if is_full and change is None:
                    self._left_over[reading.uri] = at, rest
                    return at, False, None
        except FileNotFoundError as error:
            raise _events_gone(reading.uri, at.version) from error
        return at, True, change


def _events_gone(uri: str, version: int) -> EventsGoneError:
    return EventsGoneError(
        f"version {version} of {uri} is gone before it was read. Delete the node's streaming"
        " checkpoint: the tables bring its groups back, and the requests that wait"
    )
