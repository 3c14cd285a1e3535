"""The log of `requests` keeps what the stream has not consumed, and not much more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.log_trim import trim_log


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of twenty commits of one row each, with a checkpoint at version 15."""
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    appender = Appender(tmp_path)
    for n in range(1, 21):
        appender.append(pa.table({"n": pa.array([n], pa.int64())}))
        if n == 15:
            DeltaTable(str(tmp_path)).create_checkpoint()
    return tmp_path


def versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


def test_what_is_consumed_and_in_a_checkpoint_goes(table: Path) -> None:
    assert trim_log(str(table), 10, grace_s=0) > 0
    assert versions(table) == list(range(10, 21))


def test_what_no_checkpoint_holds_stays_however_much_is_consumed(table: Path) -> None:
    trim_log(str(table), 20, grace_s=0)
    assert versions(table) == list(range(15, 21))


def test_what_somebody_may_be_about_to_read_stays(table: Path) -> None:
    """A reader that has listed the log before the checkpoint was there opens the commits."""
    assert trim_log(str(table), 10, grace_s=60) == 0
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    os.utime(checkpoint, (0, 0))
    assert trim_log(str(table), 10, grace_s=60) > 0


@pytest.mark.parametrize("skew_s", [-3600, 60, 86_400])
def test_no_clock_but_the_store_s_takes_part(table: Path, monkeypatch, skew_s: int) -> None:
    """By a fast clock there would be no grace, by a slow one nothing would be trimmed."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + skew_s)
    monkeypatch.setattr(time, "time_ns", lambda: int((now() + skew_s) * 1e9))
    assert trim_log(str(table), 10, grace_s=30) == 0
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    os.utime(checkpoint, (now() - 60, now() - 60))
    assert trim_log(str(table), 10, grace_s=30) > 0


def test_without_a_checkpoint_everything_stays(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    assert trim_log(str(tmp_path), 1, grace_s=0) == 0
    assert versions(tmp_path) == [0]


def test_readers_and_writers_go_on(table: Path) -> None:
    writer = Appender(table)
    trim_log(str(table), 20, grace_s=0)
    writer.append(pa.table({"n": pa.array([21], pa.int64())}))
    Appender(table).append(pa.table({"n": pa.array([22], pa.int64())}))
    rows = DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist()
    assert sorted(rows) == list(range(1, 23))


def test_a_writer_that_slept_through_it_goes_on_too(table: Path) -> None:
    asleep = Appender(table)
    other = Appender(table)
    for n in range(21, 41):
        other.append(pa.table({"n": pa.array([n], pa.int64())}))
    DeltaTable(str(table)).create_checkpoint()
    trim_log(str(table), 40, grace_s=0)
    asleep.append(pa.table({"n": pa.array([41], pa.int64())}))
    assert DeltaTable(str(table)).version() == 41
