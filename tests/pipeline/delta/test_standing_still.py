"""A writer that stands still between its file and its commit, as on a laptop that sleeps.

VACUUM deletes a file that no commit names. A commit of it would be acknowledged, and nobody could
read the table any more.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.data_file import COMMITTABLE_S
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.topics import log_appender
from tests.clocks import AheadClocks
from tests.pipeline.topics.logs import appender as topic_appender
from tests.pipeline.topics.logs import batch, make


def sleep_while_files_go(clocks: AheadClocks, which: str, folder: Path, spared: set[Path]) -> None:
    """Sleep, by one clock, for so long that VACUUM may take files: all but the spared ones."""
    setattr(clocks, which, COMMITTABLE_S + 1)
    for file in {*folder.rglob("*.parquet")} - spared:
        file.unlink()


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.mark.parametrize("which", ["wall_ahead_s", "monotonic_ahead_s"])
def test_rows_whose_file_may_be_gone_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    appender = Appender(tmp_path)
    appender.append(numbers(1))
    clocks, follow = AheadClocks(), Snapshot.follow
    before = {*tmp_path.rglob("*.parquet")}

    def sleep(self: Snapshot, is_sure: bool) -> None:
        monkeypatch.setattr(Snapshot, "follow", follow)
        sleep_while_files_go(clocks, which, tmp_path, before)
        follow(self, is_sure)

    monkeypatch.setattr(Snapshot, "follow", sleep)
    with clock.use(clocks):
        assert appender.append(numbers(7), "app", 1)
    assert "its rows are written to a new file" in caplog.text
    found = DeltaTable(str(tmp_path)).to_pyarrow_table().column("n").to_pylist()
    assert sorted(found) == [1, 7]


@pytest.mark.parametrize("which", ["wall_ahead_s", "monotonic_ahead_s"])
def test_so_are_records_of_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    topic = make(str(tmp_path), 1)
    clocks, create = AheadClocks(), Log.create

    def be_late(_self: Log, _commit: Commit, _version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        raise FileExistsError("another writer was faster")

    monkeypatch.setattr(Log, "create", be_late)

    def back_off(_attempt: int) -> None:
        sleep_while_files_go(clocks, which, Path(topic.table), set())

    monkeypatch.setattr(log_appender, "back_off", back_off)
    with clock.use(clocks):
        topic_appender(topic).append([batch(0, "a", "b")])
    found = DeltaTable(topic.table).to_pyarrow_table().column("value").to_pylist()
    assert sorted(found) == [b"a", b"b"]
