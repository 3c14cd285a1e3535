"""A table that was deleted and made again, or set back to an older copy, is another table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import followed, identity
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.followed import TableFollower, TableTail, follow
from group_coordinator.pipeline.delta.identity import SameTable, TableAway, TableReplacedError
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.errors import Failure
from tests.clocks import AheadClocks


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each look compare the table with the one that was read."""
    monkeypatch.setattr(identity, "CHECK_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with versions 0 to 5."""
    return make(tmp_path / "t", 5)


def make(folder: Path, appends: int) -> Path:
    DeltaTable.create(str(folder), pa.schema([("n", pa.int64())]))
    append(folder, appends)
    return folder


def append(folder: Path, times: int = 1) -> None:
    for _ in range(times):
        write_deltalake(str(folder), pa.table({"n": pa.array([1], pa.int64())}), mode="append")


def remake(appends: int) -> Callable[[Path], None]:
    """Return what makes the table anew with so many appends."""

    def making(folder: Path) -> None:
        shutil.rmtree(folder)
        make(folder, appends)

    return making


def set_back(folder: Path) -> None:
    """Put back a copy that ends at version 3, with the times of its files."""
    for version in (4, 5):
        commit_path(folder / "_delta_log", version).unlink()


def set_back_and_go_on(folder: Path) -> None:
    set_back(folder)
    append(folder, 4)


REPLACED = {
    "shorter": (remake(1), "its id is|cannot|another commit|ends at"),
    "as-long": (remake(5), "another commit|its id is"),
    "longer": (remake(9), "another commit|its id is"),
    "older-copy": (set_back, "ends at version 3, but was read up to version 5"),
    "older-copy-that-went-on": (set_back_and_go_on, "version 5 is another commit"),
}


def look_until_it_fails(poll: Callable[[], object]) -> None:
    """Look once, and once more if there were rows of the other table to read on."""
    poll()
    poll()


@pytest.mark.parametrize("kind", REPLACED)
def test_a_replaced_table_is_told_by_name_to_its_tail(folder: Path, kind: str) -> None:
    tail = follow(str(folder), ["n"])
    assert tail.poll() is None
    replace, why = REPLACED[kind]
    replace(folder)
    with pytest.raises(TableReplacedError, match=f"{folder} was replaced.*({why})"):
        look_until_it_fails(tail.poll)


def test_a_table_that_is_away_is_a_failed_look_each_time_until_it_is_back(folder: Path) -> None:
    tail = follow(str(folder), ["n"])
    away = folder.rename(folder.with_name("away"))
    for _ in range(3):
        with pytest.raises(TableAway, match="restore it"):
            tail.poll()
    away.rename(folder)
    append(folder)
    assert tail.poll() is not None
    assert tail.poll() is None


def test_a_look_that_failed_is_compared_again_before_its_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 3600.0)
    tail = follow(str(folder), ["n"])
    away = folder.rename(folder.with_name("away"))
    assert tail.poll() is None
    with clock.use(AheadClocks(monotonic_s=3601.0)):
        for _ in range(2):
            with pytest.raises(TableAway):
                tail.poll()
        away.rename(folder)
        assert tail.poll() is None
        folder.rename(away)
        assert tail.poll() is None


def test_what_keeps_the_id_is_no_other_table(folder: Path) -> None:
    tail, same = follow(str(folder), ["n"]), SameTable(str(folder))
    for change in (
        lambda: DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "false"}),
        lambda: DeltaTable(str(folder)).optimize.compact(),
        lambda: DeltaTable(str(folder)).restore(2),
    ):
        change()
        tail.poll()
        same.check(DeltaTable(str(folder)).version())


def test_a_log_that_was_cleaned_up_is_still_the_same_table(folder: Path) -> None:
    tail, same = follow(str(folder), ["n"]), SameTable(str(folder), at=1)
    append(folder)
    assert tail.poll() is not None
    append(folder)
    DeltaTable(str(folder)).create_checkpoint()
    for version in range(7):
        commit_path(folder / "_delta_log", version).unlink()
    tail.poll()
    assert tail.poll() is None
    same.check(7)
    remake(1)(folder)
    with pytest.raises(TableReplacedError):
        tail.poll()
    with pytest.raises(TableReplacedError):
        same.check(7)


def test_a_position_beyond_the_log_of_a_new_start_is_another_table(folder: Path) -> None:
    with pytest.raises(TableReplacedError, match=r"ends at version 5, but was read up to .* 500"):
        SameTable(str(folder)).check(500)


def test_a_first_comparison_learns_the_id_of_a_table_whose_log_is_cleaned_up_later(
    folder: Path,
) -> None:
    same = SameTable(str(folder))
    same.check(5)
    # The other table's log has a checkpoint, so version 5 may have been freed and written again.
    remake(9)(folder)
    DeltaTable(str(folder)).create_checkpoint()
    with pytest.raises(TableReplacedError, match="its id is"):
        same.check(7)


def test_where_nothing_was_read_yet_there_is_no_other_table(folder: Path) -> None:
    SameTable(str(folder)).check(-1)


@pytest.mark.parametrize("appends", [2, 8])
def test_a_replaced_table_is_read_anew_by_the_next_look(folder: Path, appends: int) -> None:
    def count(known: int | None, rows: pa.Table, _is_whole: bool) -> int:
        return (known or 0) + rows.num_rows

    table = TableFollower(str(folder), ["n"], count, lambda: True)
    assert table.poll() and table.known == 5
    remake(appends)(folder)
    with pytest.raises(TableReplacedError):
        look_until_it_fails(table.poll)
    table.poll()
    assert table.known == appends


def test_a_table_that_was_made_anew_and_has_no_rows_yet_is_unknown(folder: Path) -> None:
    table = TableFollower(str(folder), ["n"], lambda *_: True, lambda: True)
    table.poll()
    remake(0)(folder)
    with pytest.raises(TableReplacedError):
        table.poll()
    for _ in range(2):
        with pytest.raises(Failure, match="created again and has no rows yet"):
            table.poll()
    append(folder)
    assert table.poll()


# --- writers --------------------------------------------------------------------------------------


def rows(appends: int = 1) -> pa.Table:
    return pa.table({"n": pa.array(range(appends), pa.int64())})


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", REPLACED)
def test_an_appender_writes_nothing_into_a_replaced_table(folder: Path, kind: str) -> None:
    appender = Appender(folder)
    REPLACED[kind][0](folder)
    before = names(folder)
    for _ in range(2):
        with pytest.raises(TableReplacedError, match="Restart this process"):
            appender.append(rows(), "query", 2)
    assert names(folder) == before


@pytest.mark.parametrize("appends", [1, 3, 9])
def test_an_appender_compares_its_own_last_commit(folder: Path, appends: int) -> None:
    appender = Appender(folder)
    assert appender.append(rows()) and appender.append(rows())
    remake(appends)(folder)
    with pytest.raises(TableReplacedError):
        appender.append(rows())
    assert DeltaTable(str(folder)).version() == appends


def test_an_append_to_a_table_that_is_away_does_not_make_it_again(folder: Path) -> None:
    appender = Appender(folder)
    away = folder.rename(folder.with_name("away"))
    with pytest.raises((OSError, TableAway)):
        appender.append(rows())
    with pytest.raises(TableAway):
        appender.append(None, "query", 1)
    assert not folder.exists()
    away.rename(folder)
    assert appender.append(rows())


def test_an_appender_goes_on_after_what_keeps_the_id(folder: Path) -> None:
    appender = Appender(folder)
    for change in (
        lambda: DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "false"}),
        lambda: DeltaTable(str(folder)).optimize.compact(),
        lambda: DeltaTable(str(folder)).create_checkpoint(),
        lambda: append(folder),
    ):
        change()
        assert appender.append(rows())


def test_a_new_table_in_the_same_log_is_another_one(folder: Path) -> None:
    appender = Appender(folder)
    DeltaTable.create(str(folder), pa.schema([("n", pa.int64())]), mode="overwrite")
    with pytest.raises(TableReplacedError, match="its id is"):
        appender.append(rows())


def test_a_cleaned_up_log_of_another_table_is_not_taken_for_a_clean_up(folder: Path) -> None:
    appender = Appender(folder)
    remake(12)(folder)
    clean_up(folder)
    with pytest.raises(TableReplacedError, match="its id is"):
        appender.append(rows())


def clean_up(folder: Path) -> None:
    """Leave of the log the newest Delta checkpoint."""
    handle = DeltaTable(str(folder))
    handle.create_checkpoint()
    for version in range(handle.version()):
        commit_path(folder / "_delta_log", version).unlink()


def test_a_tail_reads_again_what_it_could_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = TableTail(open_files(str(folder)), 5, ["n"])
    append(folder)
    with monkeypatch.context() as patch:

        def fail(*_arguments: object, **_options: object) -> None:
            raise OSError("read failed")

        patch.setattr(followed, "appended", fail)
        with pytest.raises(OSError, match="read failed"):
            tail.poll()
    rows = tail.poll()
    assert rows is not None and rows.to_pydict() == {"n": [1]}
    assert tail.poll() is None
