"""The rows of an append-only Delta table as a log: numbered from 0 in the order of their commits.

A row's number is its offset: rows are ordered by commit, then by their file's place in the commit,
then by their place in the file. A number never changes: rows are only added at the end, and a
rewrite that changes no data (OPTIMIZE) is ignored, because the files before it hold the same rows.
Numbering needs the whole log and the files that it names: a table whose log was cleaned up, or
whose files were vacuumed after a rewrite, cannot be numbered any more, and NotALog is raised.
"""

from __future__ import annotations

from bisect import bisect_right
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from pipeline.delta.commit_reader import GoneCheck, open_files, read_commit
from pipeline.delta.log import LogGone
from pipeline.delta.table import open_delta
from pipeline.errors import Failure

# Tables with deletion vectors or renamed columns require later reader versions, and are refused.
READER_VERSION = 1


class NotALog(Failure):
    """A table whose rows cannot be numbered for good; the message says why."""


class _Add(Struct, rename="camel"):
    path: str
    data_change: bool = True
    partition_values: dict[str, str | None] = {}
    stats: str | None = None


class _Remove(Struct, rename="camel"):
    data_change: bool = True


class _Protocol(Struct, rename="camel"):
    min_reader_version: int


class _Action(Struct, rename="camel"):
    add: _Add | None = None
    remove: _Remove | None = None
    protocol: _Protocol | None = None


class _Stats(Struct, rename="camel"):
    num_records: int | None = None


_decode_action = msgspec.json.Decoder(_Action).decode
_decode_stats = msgspec.json.Decoder(_Stats).decode


class _File(Struct):
    """A file's rows: the number of the first row, and their count."""

    first: int
    count: int
    path: str
    partition_values: dict[str, str | None]


class Rows(Struct):
    """Rows in the order of their numbers; `first` is the number of the first."""

    first: int
    rows: pa.Table

    @property
    def end(self) -> int:
        """The number of the last row plus one."""
        return self.first + int(self.rows.num_rows)


class TableRows:
    """Reads a table by the numbers of its rows.

    Raises NotALog, also for a table that does not exist.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        try:
            handle = open_delta(uri)
        except TableNotFoundError as error:
            raise NotALog(f"there is no Delta table at {uri}") from error
        schema = handle.schema().to_arrow()
        # Tells the table from any other, whatever URI it was opened by.
        self.table_id = str(handle.metadata().id)
        self.columns: tuple[str, ...] = tuple(pa.schema(schema).names)
        self._types = {field.name: field.type for field in pa.schema(schema)}
        self._files = open_files(uri)
        self._check_gone = GoneCheck(self._files)
        self._version = -1
        self._added: list[_File] = []
        self._starts: list[int] = []
        # The row group that was read last, and its first number: the next batch often begins in it.
        self._held: tuple[int, pa.Table] = (0, pa.table({}))
        self.end = 0

    def look(self) -> bool:
        """Take in what was committed since the last look; return whether there are new rows.

        Raises NotALog, OSError.
        """
        before = self.end
        while (content := read_commit(self._files, self._version + 1)) is not None:
            self._version += 1
            self._take([_decode_action(line) for line in content.splitlines() if line])
        try:
            if self._version < 0:
                raise LogGone("it does not begin with version 0")
            self._check_gone(self._version + 1)
        except LogGone as error:
            raise NotALog(
                f"the log of {self._uri} was cleaned up, and the order of its rows with it: "
                f"{error} (delta.logRetentionDuration says how long it is kept)"
            ) from error
        return self.end > before

    def read(self, first: int, most: int) -> Rows:
        """Return up to `most` rows from number `first` on; fewer where the rows end.

        Raises NotALog if a file of the rows is gone.
        """
        tables = []
        at, until = first, min(first + most, self.end)
        while at < until:
            file = self._added[bisect_right(self._starts, at) - 1]
            begin, group = self._row_group(file, at)
            table = group.slice(at - begin, until - at)
            tables.append(table)
            at += table.num_rows
        rows = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
        return Rows(first, rows)

    # --- the log --------------------------------------------------------------------------------

    def _take(self, actions: list[_Action]) -> None:
        for action in actions:
            protocol, remove = action.protocol, action.remove
            if protocol is not None and protocol.min_reader_version > READER_VERSION:
                raise NotALog(
                    f"{self._uri} asks for readers of version {protocol.min_reader_version} of "
                    f"Delta's protocol, and this is one of version {READER_VERSION}"
                )
            if remove is not None and remove.data_change:
                raise NotALog(
                    f"{self._uri} is not append-only: its version {self._version} removes rows"
                )
        for action in actions:
            if action.add is not None and action.add.data_change:
                self._add(action.add)

    def _add(self, add: _Add) -> None:
        path = unquote(add.path)
        count = None if add.stats is None else _decode_stats(add.stats).num_records
        if count is None:
            with self._files.open_input_file(path) as file:
                count = int(pq.read_metadata(file).num_rows)
        if count:
            self._starts.append(self.end)
            self._added.append(_File(self.end, count, path, add.partition_values))
            self.end += count

    def _row_group(self, file: _File, at: int) -> tuple[int, pa.Table]:
        """Return the number of the first row of the row group that has row `at`, and the group."""
        begin, held = self._held
        if begin <= at < begin + held.num_rows:
            return self._held
        try:
            with self._files.open_input_file(file.path) as opened:
                parquet = pq.ParquetFile(opened)
                begin = file.first
                for number in range(parquet.num_row_groups):
                    count = parquet.metadata.row_group(number).num_rows
                    if at < begin + count:
                        break
                    begin += count
                table = parquet.read_row_group(number)
        except FileNotFoundError as error:
            raise NotALog(
                f"{file.path} of {self._uri} is gone (vacuumed after a rewrite?), and with it the "
                f"order of the rows from {file.first} on"
            ) from error
        for name, value in file.partition_values.items():
            column = pa.repeat(pa.scalar(value, pa.string()), table.num_rows)
            table = table.append_column(name, column.cast(self._types[name]))
        self._held = (begin, table)
        return self._held
