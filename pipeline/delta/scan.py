"""Reading a table's present rows file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import open_delta


def newest_first(uri: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each file of the table's newest version, the newest file first.

    None of the columns may be a partition column; a column that a file lacks is left out. Raises
    deltalake's TableNotFoundError, and FileNotFoundError for a file that was deleted meanwhile.
    """
    files = open_files(uri)
    for file in reversed(data_files(open_delta(uri))):
        with files.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            for group in reversed(range(parquet.num_row_groups)):
                yield parquet.read_row_group(group, columns=list(columns))
