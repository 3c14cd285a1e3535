"""Reading of a stream's two tables by pages of events, each with the position after it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from group_coordinator.pipeline.delta import Position, appended, open_files
from group_coordinator.pipeline.stream.change import SelectionChange, taken_out
from group_coordinator.pipeline.stream.lingering import least_linger
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed import PACKED_SCHEMA
from group_coordinator.pipeline.stream.packing import MOST_GROWTH, pack_together, select_rows
from group_coordinator.pipeline.stream.request_pages import (
    RefusedRequests,
    read_pages,
    refuse_packed,
)
from group_coordinator.pipeline.tables import wanted_row_groups
from group_coordinator.schemas.apis import LingerMultiple
from group_coordinator.schemas.tables import REQUESTS

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
    """Yield the bootstrap's events, which are packed already, from `start` on, page by page.

    Requests of more than `most` bytes are refused.
    """
    for rows, after in appended(table_files(uri), start, PACKED_SCHEMA.names, end):
        if rows is None:
            yield None, after
        else:
            events, change = taken_out(rows.cast(PACKED_SCHEMA))
            yield Page(refuse_packed(events, most), rows.nbytes, change=change), after


def _wanted(
    selection: Selection, version: int, tags: Mapping[str, str | None] | None
) -> list[bool] | None:
    """Return which row groups of a file of `requests` may have selected requests, by its tags."""
    return wanted_row_groups(tags, selection.at(version))
