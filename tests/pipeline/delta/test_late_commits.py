"""A commit of a writer that was slower than the clean-up of the log is brought to its end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from group_coordinator.pipeline.delta import log_trim
from group_coordinator.pipeline.delta.appender import Appender, Epoch
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.log import Log, commit_path
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.storage import CommitStateUnknown


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())


def append(table: Path, *values: int) -> None:
    appender = Appender(table)
    for n in values:
        appender.append(numbers(n))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose log was cleaned up to version 5, of the rows 1 to 6."""
    table = tmp_path / "table"
    DeltaTable.create(str(table), pa.schema([("n", pa.int64())]))
    append(table, 1, 2, 3, 4, 5)
    DeltaTable(str(table)).create_checkpoint()
    append(table, 6)
    assert trim_log(str(table), 6, grace_s=0)
    return table


def come_late(table: Path, version: int, write) -> None:
    """Have `write` append to a copy of the table, as it was, and its commit be of this version."""
    copy = table.with_name("copy")
    shutil.copytree(table, copy)
    write(copy)
    newest = DeltaTable(str(copy)).version()
    for file in copy.glob("*.parquet"):
        shutil.copy(file, table)
    shutil.copy(
        commit_path(copy / "_delta_log", newest), commit_path(table / "_delta_log", version)
    )
    shutil.rmtree(copy)


def by_delta_rs(table: Path) -> None:
    write_deltalake(str(table), numbers(70, 71), mode="append")


def test_what_came_late_is_brought_and_its_place_is_cleaned(table: Path, caplog) -> None:
    come_late(table, 2, by_delta_rs)
    assert rows(table) == [1, 2, 3, 4, 5, 6]
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 70, 71]
    assert DeltaTable(str(table)).version() == 7
    assert not commit_path(table / "_delta_log", 2).exists()
    (line,) = caplog.messages
    assert line.endswith(
        "after the log was cleaned up beyond it: it is committed again as version 7"
    )
    trim_log(str(table), 6, grace_s=0)
    assert DeltaTable(str(table)).version() == 7


def test_a_late_commit_keeps_its_operation_in_the_history(table: Path) -> None:
    come_late(table, 2, lambda copy: Appender(copy, is_sink=True).append(numbers(70), "query", 5))
    trim_log(str(table), 6, grace_s=0)
    newest = DeltaTable(str(table)).history(1)[0]
    assert (newest["version"], newest["operation"]) == (7, "STREAMING UPDATE")
    assert newest["operationParameters"]["epochId"] == "5"


def test_what_was_brought_before_is_not_brought_again(table: Path, monkeypatch) -> None:
    """Whoever brought it was killed before the deletion."""
    come_late(table, 2, by_delta_rs)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trim_log(str(table), 6, grace_s=0)
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 70, 71]
    # Whoever follows the log would read the rows once more.
    assert DeltaTable(str(table)).version() == 7


def test_two_who_bring_at_once_bring_once(table: Path, monkeypatch) -> None:
    come_late(table, 2, by_delta_rs)
    create = Log.create

    def other_first(self: Log, commit: Commit, version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        assert log_trim.bring(table, 2) == 7
        create(self, commit, version)

    monkeypatch.setattr(Log, "create", other_first)
    with pytest.raises(FileNotFoundError):
        log_trim.bring(table, 2)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 70, 71]


@pytest.mark.parametrize("version", [0, 3])
def test_what_its_writer_wrote_again_is_not_brought(table: Path, version: int) -> None:
    properties = CommitProperties(app_transactions=[Transaction("app", version)])
    come_late(
        table,
        2,
        lambda copy: write_deltalake(
            str(copy), numbers(7), mode="append", commit_properties=properties
        ),
    )
    Appender(table).append(numbers(7), "app", version)
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 7]


def test_a_batch_of_another_engine_s_stream_is_brought_though_the_stream_went_on(
    table: Path,
) -> None:
    """It was told that its commit stands, so it wrote the next batch and not this one again."""
    properties = CommitProperties(app_transactions=[Transaction("stream", 5)])
    come_late(
        table,
        2,
        lambda copy: write_deltalake(
            str(copy), numbers(7), mode="append", commit_properties=properties
        ),
    )
    following = CommitProperties(app_transactions=[Transaction("stream", 6)])
    write_deltalake(str(table), numbers(8), mode="append", commit_properties=following)
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_a_writer_of_ours_wrote_again_is_not_brought_though_it_went_on(table: Path) -> None:
    come_late(table, 2, lambda copy: Appender(copy).append(numbers(7), "app", 5))
    for version in (5, 6):
        Appender(table).append(numbers(7), "app", version)
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 7, 7]


@pytest.mark.parametrize(
    ("wrote", "brought"), [(None, True), (5, False), (9, False)], ids=["nobody", "less", "the same"]
)
def test_what_stood_behind_another_version_is_brought_only_if_nobody_came_between(
    table: Path, wrote: int | None, brought: bool
) -> None:
    """Versions have gaps: 9 follows 3, as the batches of a query that had none in between."""
    append_as(table, "app", 3)
    come_late(table, 2, lambda copy: Appender(copy).append(numbers(7), "app", 9))
    if wrote is not None:
        append_as(table, "app", wrote)
    trim_log(str(table), 6, grace_s=0)
    assert (7 in rows(table)) is brought
    assert not commit_path(table / "_delta_log", 2).exists()


def test_what_its_application_wrote_first_of_all_is_brought(table: Path) -> None:
    come_late(table, 2, lambda copy: Appender(copy, Epoch(1, 3)).append(numbers(7), "app", 0))
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 7]


def append_as(table: Path, app_id: str, version: int) -> None:
    assert Appender(table).append(None, app_id, version)


@pytest.mark.parametrize("raised", [False, True])
def test_what_a_fenced_epoch_wrote_is_not_brought(table: Path, raised: bool) -> None:
    epoch = Epoch(1, 3)
    append_as(table, epoch.app_id, 3)
    come_late(table, 2, lambda copy: Appender(copy, epoch).append(numbers(7)))
    if raised:
        append_as(table, epoch.app_id, 4)
    trim_log(str(table), 6, grace_s=0)
    assert (7 in rows(table)) is not raised


def test_nor_is_it_if_it_is_fenced_while_it_is_brought(table: Path, monkeypatch) -> None:
    epoch = Epoch(1, 3)
    come_late(table, 2, lambda copy: Appender(copy, epoch).append(numbers(7)))
    create = Log.create

    def later_start(self: Log, commit: Commit, version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        append_as(table, epoch.app_id, 4)
        create(self, commit, version)

    monkeypatch.setattr(Log, "create", later_start)
    trim_log(str(table), 6, grace_s=0)
    assert 7 not in rows(table)


def test_what_is_brought_stands_behind_the_same_versions(table: Path) -> None:
    """Who brings it may stand still as well."""
    append_as(table, "app", 3)
    come_late(table, 2, lambda copy: Appender(copy).append(numbers(7), "app", 9))
    trim_log(str(table), 6, grace_s=0)
    (info,) = DeltaTable(str(table)).history(1)
    assert info["expectedVersions"] == {"app": 3}


def test_what_is_no_append_is_named_and_kept_aside(table: Path, caplog) -> None:
    come_late(table, 2, lambda copy: DeltaTable(str(copy)).delete("n = 3"))
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6]
    assert caplog.messages[0].startswith(f"version 2 of {table} is lost")
    assert len(list((table / "_delta_log").glob(".late-*2.json"))) == 1
    trim_log(str(table), 6, grace_s=0)
    assert len(caplog.messages) == 1


def test_what_an_interrupted_clean_up_left_is_not_late(table: Path, tmp_path: Path) -> None:
    """A clean-up of another release deletes in any order: its leftovers are older."""
    append(table, *range(10, 20))
    DeltaTable(str(table)).create_checkpoint()
    log = table / "_delta_log"
    for version in (8, 9):
        commit_path(log, version).unlink()
    assert log_trim.late_commits(log, [5, 6, 7, 10, 11, 12, 13, 14, 15, 16]) == []
    before = rows(table)
    assert trim_log(str(table), 20, grace_s=0)
    assert (rows(table), DeltaTable(str(table)).version()) == (before, 16)


def test_a_store_that_fails_leaves_it_for_the_next_time(table: Path, monkeypatch) -> None:
    come_late(table, 2, by_delta_rs)

    def fail(*_: object) -> None:
        raise CommitStateUnknown("no answer")

    with monkeypatch.context() as failing:
        failing.setattr(Log, "create", fail)
        with pytest.raises(CommitStateUnknown):
            trim_log(str(table), 6, grace_s=0)
    trim_log(str(table), 6, grace_s=0)
    assert rows(table) == [1, 2, 3, 4, 5, 6, 70, 71]
