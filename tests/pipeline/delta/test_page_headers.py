"""A footer that says less than the pages of its file have is not believed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from group_coordinator.pipeline.delta import page_headers
from group_coordinator.pipeline.delta.parquet_file import open_parquet, why_damaged
from tests.pipeline.damage import understate

TEXT = "m" * 100_000
ROWS = pa.table({"text": [TEXT] * 100, "list": [list(range(20))] * 100, "number": range(100)})
CODECS = ("none", "snappy", "zstd")


@pytest.fixture(params=[True, False], ids=["at once", "page by page"])
def files(request, monkeypatch, tmp_path: Path) -> FileSystem:
    if not request.param:
        monkeypatch.setattr(page_headers, "_AT_ONCE_BYTES", 0)
        monkeypatch.setattr(page_headers, "_HEADER_BYTES", 8)
    return SubTreeFileSystem(str(tmp_path), LocalFileSystem())


def opened(files: FileSystem) -> pq.ParquetFile | str:
    with files.open_input_file("file") as file:
        return open_parquet(files, "file", file)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_footer_that_is_true_is_believed(files, tmp_path, codec, version, dictionary):
    pq.write_table(
        ROWS,
        tmp_path / "file",
        compression=codec,
        data_page_version=version,
        use_dictionary=dictionary,
        data_page_size=10_000,
        row_group_size=30,
        write_page_checksum=True,
    )
    assert isinstance(opened(files), pq.ParquetFile)
    assert why_damaged(files, "file") is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("column", ["text", "list.list.element", "number"])
@pytest.mark.parametrize("field", ["total_uncompressed_size", "num_values"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_footer_that_understates_a_column_is_not(files, tmp_path, codec, column, field, version):
    pq.write_table(ROWS, tmp_path / "file", compression=codec, data_page_version=version)
    understate(tmp_path / "file", column, field)
    told = opened(files)
    assert isinstance(told, str)
    assert f"by its footer column '{column}' of row group 0 has " in told
    assert why_damaged(files, "file") == told
