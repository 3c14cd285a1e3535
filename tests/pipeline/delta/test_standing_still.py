"""A writer that stands still between its file and its commit, as on a laptop that sleeps.

VACUUM deletes a file that no commit names. A commit of it would be acknowledged, and nobody could
read the table any more.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.file_commits import FileCommits
from group_coordinator.pipeline.delta.freshness import COMMITTABLE_S
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.rewrite import Rewrite, RewriteConflict
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.topics import log_appender
from tests.pipeline.topics.logs import appender as topic_appender
from tests.pipeline.topics.logs import batch, make


class Clocks:
    """The machine's clocks, of which one is set forward by a sleep."""

    def __init__(self, which: str) -> None:
        self.which, self._slept_s = which, 0.0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(1_000 * self._ahead_s("wall"))

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s("monotonic")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _ahead_s(self, which: str) -> float:
        return self._slept_s if which == self.which else 0.0

    def sleep_while_files_go(self, folder: Path, spared: set[Path]) -> None:
        """Sleep for so long that VACUUM may take files, all but those that are spared."""
        self._slept_s = COMMITTABLE_S + 1
        for file in {*folder.rglob("*.parquet")} - spared:
            file.unlink()


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.mark.parametrize("which", ["wall", "monotonic"])
def test_rows_whose_file_may_be_gone_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    appender = LocalAppender(tmp_path)
    appender.append(numbers(1))
    clocks, follow = Clocks(which), Snapshot.follow
    before = {*tmp_path.rglob("*.parquet")}

    def sleep(self: Snapshot) -> None:
        monkeypatch.setattr(Snapshot, "follow", follow)
        clocks.sleep_while_files_go(tmp_path, before)
        follow(self)

    monkeypatch.setattr(Snapshot, "follow", sleep)
    with clock.use(clocks):
        assert appender.append(numbers(7), "app", 1)
    assert "its rows are written anew" in caplog.text
    found = DeltaTable(str(tmp_path)).to_pyarrow_table().column("n").to_pylist()
    assert sorted(found) == [1, 7]


@pytest.mark.parametrize("which", ["wall", "monotonic"])
def test_so_are_records_of_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    topic = make(str(tmp_path), 1)
    clocks, commit = Clocks(which), FileCommits.commit

    def be_late(_self: FileCommits, _version: int, _rewrite: Rewrite) -> None:
        monkeypatch.setattr(FileCommits, "commit", commit)
        raise RewriteConflict("t", "another writer was faster")

    monkeypatch.setattr(FileCommits, "commit", be_late)
    monkeypatch.setattr(
        log_appender, "back_off", lambda _: clocks.sleep_while_files_go(Path(topic.table), set())
    )
    with clock.use(clocks):
        topic_appender(topic).append([batch(0, "a", "b")])
    found = DeltaTable(topic.table).to_pyarrow_table().column("value").to_pylist()
    assert sorted(found) == [b"a", b"b"]
