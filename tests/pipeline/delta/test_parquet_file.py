"""What is certainly no Parquet file, and what merely could not be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from group_coordinator.pipeline.delta.parquet_file import why_no_parquet


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    path = tmp_path / "whole"
    pq.write_table(pa.table({"n": list(range(100))}), path)
    return path.read_bytes()


@pytest.fixture
def files(tmp_path: Path) -> FileSystem:
    return SubTreeFileSystem(str(tmp_path), LocalFileSystem())


def test_a_parquet_file_is_one(files, whole):
    assert why_no_parquet(files, "whole") is None


def test_what_is_certainly_none_is_told(files, tmp_path, whole):
    broken_footer = whole[:-200] + bytes(192) + whole[-8:]
    for content, why in (
        (b"", "it has 0 bytes"),
        (b"PAR1", "it has 4 bytes"),
        (b"not at all what it should be", "it does not end with PAR1"),
        (whole[: len(whole) // 2], "it does not end with PAR1"),
        (bytes(len(whole)), "it does not end with PAR1"),
        (b"PAR1" + (1 << 30).to_bytes(4, "little") + b"PAR1", "it has 12 bytes, and a footer"),
        (broken_footer, "its footer cannot be read"),
    ):
        (tmp_path / "file").write_bytes(content)
        told = why_no_parquet(files, "file")
        assert told is not None and told.startswith(why)


class Short:
    """A file of which a store has returned less than was asked for."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def size(self):
        return 1000

    def read_at(self, _length, _start):
        return b"PAR"


class Failing(Short):
    def read_at(self, _length, _start):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("file", [Short(), Failing()])
def test_what_could_not_be_read_decides_nothing(file):
    class Store:
        def open_input_file(self, _path):
            return file

    with pytest.raises(OSError, match=r"bytes were read|Input/output error"):
        why_no_parquet(Store(), "file")


def test_a_file_that_is_gone_is_no_answer_either(files):
    with pytest.raises(FileNotFoundError):
        why_no_parquet(files, "gone")
