"""One commit: what it needs of a log, however many identifiers the table has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.commit import Changes, Move
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.log import checkpoint_name, commit_path
from group_coordinator.pipeline.delta.table import newest_version, open_delta
from group_coordinator.pipeline.delta.table_files import VersionFiles
from group_coordinator.pipeline.delta.writer import Writer, checksum_path
from tests.support.failing_reads import count_files, telling_of_reads

IDS = 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    return tmp_path


class Heard:
    """The names, or their endings, of what is read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def read(self, path: object, _file: Path | None = None) -> float | None:
        name = Path(str(path))
        if "_delta_log" in name.parts:
            self.names.append(name.suffix or name.name)
        return None


@contextmanager
def heard() -> Iterator[list[str]]:
    """What of a log is read in the block."""
    reads = Heard()
    with pytest.MonkeyPatch.context() as patch, telling_of_reads(reads):
        count_files(patch)
        yield reads.names


def test_an_append_reads_three_files_of_the_log(folder: Path) -> None:
    """The next commit, and the note of the newest checkpoint before and after its own."""
    appender = Appender(folder)
    appender.append(pa.table({"n": [1]}))
    clean_log(open_delta(str(folder)))
    with heard() as names:
        appender.append(pa.table({"n": [2]}))
    assert names == [".json", "_last_checkpoint", "_last_checkpoint"]


def identifiers(folder: Path) -> None:
    """Give a table so many identifiers, all at version 7, in a Delta checkpoint."""
    lines = [
        json.dumps({"txn": {"appId": f"sink-{number}", "version": 7, "lastUpdated": 0}})
        for number in range(IDS)
    ]
    commit_path(folder / "_delta_log", 1).write_text("\n".join(lines))
    clean_log(open_delta(str(folder)))


@pytest.mark.slow
def test_a_thousand_of_a_hundred_thousand_identifiers_move_at_once(folder: Path) -> None:
    """A checkpoint names them in 27 bytes each; who opens the table does not keep them."""
    identifiers(folder)
    size = (folder / "_delta_log" / checkpoint_name(1)).stat().st_size
    assert size < 40 * IDS
    writer = Writer(str(folder), flushed=False)
    assert writer.snapshot.state.transactions == {}
    moves = [Move(f"sink-{number}", 7, 3) for number in range(1_000)]
    with heard() as names:
        assert writer.commit(Changes(moves=moves)) == 2
    assert names.count(".parquet") == 1, "they are read together"
    with heard() as names:
        assert writer.commit(Changes(moves=[Move("sink-0", 3, 9), Move("sink-5", 7, 8)])) == {
            "sink-0": 3,
            "sink-5": 3,
        }
    assert ".parquet" not in names, "what was asked for is kept"
    assert DeltaTable(str(folder)).transaction_version("sink-999") == 3
    assert DeltaTable(str(folder)).transaction_version("sink-1000") == 7


def test_a_table_may_be_named_by_a_url(folder: Path) -> None:
    """Its log is looked at and its checksum is written as those of a path."""
    url = folder.as_uri()
    Appender(url).append(pa.table({"n": [1]}))
    assert checksum_path(folder / "_delta_log", 1).exists()
    assert newest_version(url) == 1


def test_who_only_reads_a_versions_files_reads_nothing_of_the_log(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    Appender(folder).append(pa.table({"n": [1]}))
    handle = open_delta(str(folder))
    with heard() as names:
        files = VersionFiles(handle, tmp_path_factory.mktemp("scratch"))
        assert files.gone(data_files(handle)) == []
    assert names == []
