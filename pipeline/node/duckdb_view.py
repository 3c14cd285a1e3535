"""The DuckDB engine with which a node searches the tables, and its view of a table's version.

DuckDB refuses a Parquet file with strings that are not UTF-8, which another writer may have added.
Then pyarrow copies the file, with U+FFFD in place of invalid bytes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta import Engine, VersionFiles, data_files
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session.scratch import ScratchFolder
from group_coordinator.pipeline.stream.contract_types import is_valid_utf8, valid_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta import DataFile

log = logging.getLogger(__name__)
T = TypeVar("T")


# The memory limit, bytes. A bucket of the offsets topic's records takes a quarter of it
# (`pipeline.node.load_events`).
_MEMORY = 1 << 30


@contextlib.contextmanager
def open_engine(beside_batches: bool = False) -> Iterator[Engine]:
    """Yield a DuckDB engine for a take-over, which spills to a temporary folder.

    With `beside_batches` it uses one core, to leave the others to a running query.
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
