"""A table's rows are read by Arrow alone on a local disk, with nothing of Python in its threads."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake.fs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline.delta.data_file import dataset_of
from group_coordinator.pipeline.delta.parquet_file import read_rows

PRODUCT = Path(__file__).parents[3] / "pipeline"


@pytest.mark.parametrize("named", ["{}", "file://{}"])
def test_a_local_table_is_read_without_a_file_system_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """A thread of Arrow's that waited for Python as a process ended made the process abort."""
    rows = pa.table({"part": ["a b", "a b", None], "number": [1, 2, 3]})
    write_deltalake(str(tmp_path), rows, partition_by=["part"])

    def fails(*_: object, **_more: object) -> None:
        raise AssertionError("a file was opened in Python")

    monkeypatch.setattr(deltalake.fs.DeltaStorageHandler, "open_input_file", fails)
    handle = DeltaTable(named.format(tmp_path))
    with pytest.raises(AssertionError):
        handle.to_pyarrow_table()
    found = dataset_of(handle).to_table().sort_by("number")
    assert found.to_pylist() == rows.to_pylist()


def test_a_file_that_ends_too_early_is_no_table_of_fewer_rows(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"number": [1, 2, 3]}))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(OSError, match="cannot be read"):
        read_rows(DeltaTable(str(tmp_path)))


def test_every_whole_table_is_read_by_read_rows() -> None:
    used = {path.name for path in PRODUCT.rglob("*.py") if "dataset_of(" in path.read_text("utf-8")}
    # The second one hands its dataset to DuckDB, which reads it.
    assert used == {"data_file.py", "parquet_file.py", "columns.py"}


def test_nothing_else_has_delta_rs_read_rows() -> None:
    used = [
        path.name
        for path in PRODUCT.rglob("*.py")
        if re.search(r"\.to_pyarrow_(table|dataset)\(|\.to_pandas\(", path.read_text("utf-8"))
    ]
    assert used == ["data_file.py"]
