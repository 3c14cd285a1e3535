"""The reads of tables for a take-over: queries by DuckDB, and scans by pyarrow.

DuckDB searches a version of a table (`DuckDbView`). It refuses a Parquet file with strings that are
not UTF-8, which another writer may have added; then pyarrow copies the file, with U+FFFD in place
of invalid bytes.

pyarrow scans a version in pages of limited size, with each row's position (`TableScan`). It also
reads any store that delta-rs supports, without a local copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta import (
    AT_ONCE,
    OUTSIDE,
    UNREAD,
    Engine,
    VersionFiles,
    data_files,
    is_in_store,
    is_outside,
    open_files,
    open_parquet,
    side_by_side,
    why_undecodable,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session.scratch import ScratchFolder
from group_coordinator.pipeline.stream.contract_types import is_valid_utf8, valid_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta import DataFile, Substitute


log = logging.getLogger(__name__)
T = TypeVar("T")


# The memory limit, bytes. A bucket of the offsets topic's records takes a quarter of it
# (`pipeline.node.load_events`).
_MEMORY = 1 << 30


@contextlib.contextmanager
def open_engine(beside_batches: bool = False) -> Iterator[Engine]:
    """Yield a DuckDB engine for a take-over, which spills to a temporary folder.

    With `beside_batches` it uses one core, so that a running query can use the remaining cores.
    """
    threads = 1 if beside_batches else os.cpu_count() or 1
    scratch = ScratchFolder()
    with contextlib.ExitStack() as opened:
        opened.callback(scratch.delete)
        engine = opened.enter_context(Engine(_MEMORY, threads, scratch.path))
        # No query here needs an order, and DuckDB can limit row groups in bytes only without one.
        engine.run("SET preserve_insertion_order = false")
        yield engine


class DuckDbView:
    """The rows of a table's version, or of some of its files, as a view of a DuckDB engine."""

    def __init__(
        self, engine: Engine, handle: DeltaTable, view: str, files: Sequence[DataFile] | None = None
    ) -> None:
        self.files = data_files(handle) if files is None else files
        self._engine = engine
        self._uri = handle.table_uri
        self._view = view
        self._table = VersionFiles(handle, engine.scratch)
        engine.show(view, self._table, self.files)

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the view; if strings are not UTF-8, run it again on repaired copies.

        Raises Failure with DuckDB's message.
        """
        try:
            return work()
        except Failure as error:
            if not self._copy_invalid():
                raise
            log.warning("%s has strings that are not UTF-8: %s", self._uri, error)
        self._engine.show(self._view, self._table, self.files)
        return work()

    def _copy_invalid(self) -> bool:
        """Replace the files with invalid strings by repaired copies; return whether any exist."""
        found = False
        for file in self.files:
            parquet = pq.ParquetFile(self._table.local(file))
            if all(map(is_valid_utf8, _pages(parquet))):
                continue
            found = True
            copy = self._engine.scratch / f"valid-{uuid.uuid4()}.parquet"
            with pq.ParquetWriter(copy, parquet.schema_arrow) as writer:
                for page in _pages(parquet):
                    writer.write_table(valid_utf8(page).cast(parquet.schema_arrow))
            self._table.read_instead(file, copy)
        return found


def _pages(parquet: pq.ParquetFile) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in parquet.iter_batches())


# The most uncompressed bytes of a page: a request may have a megabyte of assignments.
_PAGE_BYTES = 16 << 20
_PAGE_ROWS = 65_536


class TableScan:
    """A scan of the files of the handle's version, or of `only` some, without partition columns.

    `substitute` makes the rows in place of a damaged file or row group; without it, pyarrow's error
    is raised. Up to `at_once` files of an object store are requested in parallel.
    """

    def __init__(
        self,
        handle: DeltaTable,
        substitute: Substitute | None = None,
        only: Sequence[DataFile] | None = None,
        at_once: int = AT_ONCE,
    ) -> None:
        self._substitute = substitute
        self._at_once = at_once
        files = data_files(handle) if only is None else only
        self._paths = [file.path for file in files]
        self._files = open_files(handle.table_uri)

    @property
    def file_count(self) -> int:
        """The number of files; they are numbered from 0."""
        return len(self._paths)

    def grow(self, handle: DeltaTable) -> bool:
        """Add the new files of a later version, numbered after the present ones.

        Returns False, and changes nothing, if a present file is no longer part of the table,
        because its rows may be in another file.
        """
        paths = [file.path for file in data_files(handle)]
        known = set(self._paths)
        if not known.issubset(paths):
            return False
        self._paths += [path for path in paths if path not in known]
        return True

    def pages(self, columns: Sequence[str], since: int = 0) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield all rows: the number of their file, that of the first row in it, and the rows.

        Only files from number `since` on are read. Strings are made valid UTF-8. Columns that a
        file does not have are left out.
        """
        paths = self._paths[since:]
        opened = iter(self._opened([path for path in paths if not self._is_left_out(path)]))
        for number, path in enumerate(paths, since):
            file = None if self._is_left_out(path) else next(opened)
            for first, rows in self._pages_of(path, file, columns):
                yield number, first, valid_utf8(rows)

    def _is_left_out(self, path: str) -> bool:
        return self._substitute is not None and is_outside(unquote(path))

    def _opened(self, paths: Sequence[str]) -> Iterator[pa.NativeFile]:
        """Open files in turn, or in parallel in a store, where each is a request."""
        if is_in_store(self._files):
            return side_by_side(self._files.open_input_file, paths, self._at_once)
        return map(self._files.open_input_file, paths)

    def take(
        self, file: int, rows: pa.Array, columns: Sequence[str]
    ) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield rows of a file with their numbers; `rows` are numbers in ascending order.

        Strings are not made valid UTF-8. Columns that the file does not have are left out.
        """
        path = self._paths[file]
        opened = None if self._is_left_out(path) else self._files.open_input_file(path)
        for first, page in self._pages_of(path, opened, columns):
            here = pc.and_(pc.greater_equal(rows, first), pc.less(rows, first + page.num_rows))
            wanted = rows.filter(here)
            if len(wanted):
                yield wanted, page.take(pc.subtract(wanted, first))

    def _pages_of(
        self, path: str, opened: pa.NativeFile | None, columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.Table]]:
        begins = 0
        substitute = self._substitute
        if opened is None:
            assert substitute is not None
            yield 0, substitute.for_file(path, OUTSIDE)
            return
        with opened:
            parquet = (
                pq.ParquetFile(opened)
                if substitute is None
                else open_parquet(self._files, path, opened)
            )
            if isinstance(parquet, str):
                assert substitute is not None
                yield 0, substitute.for_file(path, parquet)
                return
            for group in range(parquet.num_row_groups):
                described = parquet.metadata.row_group(group)
                row_bytes = described.total_byte_size // max(1, described.num_rows)
                size = max(1, min(_PAGE_ROWS, _PAGE_BYTES // max(1, row_bytes)))
                first = begins
                try:
                    for batch in parquet.iter_batches(size, [group], list(columns)):
                        yield first, _without_views(pa.Table.from_batches([batch]))
                        first += batch.num_rows
                except UNREAD:
                    why = None
                    if substitute is not None:
                        why = why_undecodable(self._files, path, group, columns)
                    if substitute is None or why is None:
                        raise
                    row = first - begins
                    yield first, substitute.for_row_group(self._files, path, group, row, why)
                begins += described.num_rows


def _without_views(rows: pa.Table) -> pa.Table:
    """Return rows with binary in place of string and binary views, which Arrow cannot `take`."""
    fields = [field.with_type(_without_view(field.type)) for field in rows.schema]
    wanted = pa.schema(fields)
    return rows if wanted == rows.schema else rows.cast(wanted)


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_view(kind.key_type), _without_view(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = kind.value_field.with_type(_without_view(kind.value_type))
        return pa.list_(items) if pa.types.is_list(kind) else pa.large_list(items)
    return kind
