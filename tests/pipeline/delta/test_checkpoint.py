"""Checkpoints: when one is due, and that the table stays what it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import checkpoint
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.ends import check_end
from tests.pipeline.rows import response


@pytest.fixture
def folder(tmp_path) -> Path:
    ensure_table(str(tmp_path), RESPONSES)
    return tmp_path / "responses"


def batch(request_id: str) -> pa.Table:
    return to_arrow(RESPONSES, [response(request_id)])


def test_a_checkpoint_keeps_every_row(folder):
    Appender(folder).append(batch("a"))
    checkpoint(str(folder), 1, {}, False)
    assert list((folder / "_delta_log").glob("*.checkpoint.parquet"))
    rows = DeltaTable(str(folder)).to_pyarrow_table()
    assert rows.column("request_id").to_pylist() == ["a"]


def append_at(when: str, folder: Path) -> None:
    """Have a process append in a checkpoint's turn, and end in order without an error."""
    program = (
        "import atexit, sys\n"
        "from pathlib import Path\n"
        "from group_coordinator.pipeline.delta import appender, writer\n"
        "writer.CHECKPOINT_EVERY = 1\n"
        "appender = appender.Appender(Path(sys.argv[1]))\n"
        f"{when}(lambda: appender.append(None, 'producer', 1))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False
    )
    assert DeltaTable(str(folder)).version() == 1
    check_end(ended.returncode, ended.stderr)
    assert ended.stderr == ""


def test_a_process_that_ends_finishes_its_checkpoint_first(folder):
    append_at("(lambda append: append())", folder)
    assert (folder / "_delta_log" / f"{1:020}.checkpoint.parquet").exists()


def test_a_process_past_its_end_begins_no_checkpoint(folder):
    append_at("atexit.register", folder)
    assert not list((folder / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_large_table_is_checkpointed_less_often(folder, monkeypatch):
    monkeypatch.setattr("group_coordinator.pipeline.delta.checkpoint.ACTIONS_PER_COMMIT", 2)

    def checkpoints() -> list[int]:
        found = (folder / "_delta_log").glob("*.checkpoint.parquet")
        return sorted(int(path.name.partition(".")[0]) for path in found)

    appender = Appender(folder)
    for version in range(1, 13):
        appender.append(batch(str(version)))
        checkpoint(str(folder), version, {}, False)
    # They name the files of their version, the protocol and the metadata: 3, 4, 6, 9 and 13.
    assert checkpoints() == [1, 2, 4, 7, 11]


def test_a_checkpoint_that_nobody_can_read_about_is_written_anew(folder):
    Appender(folder).append(batch("a"))
    checkpoint(str(folder), 1, {}, False)
    (folder / "_delta_log" / "_last_checkpoint").write_text("{")
    Appender(folder).append(batch("b"))
    checkpoint(str(folder), 2, {}, False)
    assert (folder / "_delta_log" / f"{2:020}.checkpoint.parquet").exists()
