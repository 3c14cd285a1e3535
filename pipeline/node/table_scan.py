"""A scan of a table's version by pyarrow, in pages of limited size, with each row's position.

Unlike DuckDB, pyarrow reads string columns that are not UTF-8, and this module repairs them. It
also reads any store that delta-rs supports, without a local copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta import (
    AT_ONCE,
    OUTSIDE,
    UNREAD,
    data_files,
    is_in_store,
    is_outside,
    open_files,
    open_parquet,
    side_by_side,
    why_undecodable,
)
from group_coordinator.pipeline.stream.contract_types import valid_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta import DataFile, Substitute

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
