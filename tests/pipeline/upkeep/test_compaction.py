"""Compaction keeps what Kafka's log cleaner keeps, whoever is writing or being killed beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.data_file import DataFile, data_files
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.delta.writer import RewriteConflict
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.pipeline.upkeep.compaction import CompactionResult, compact, segments
from group_coordinator.schemas.records import CoordinatorRecord
from group_coordinator.schemas.tables import OFFSETS_HISTORY, OFFSETS_TOPIC, to_arrow
from tests.pipeline.offsets_log import Log, commit, stored, upkeep
from tests.roots import make_tables

# Later than any file that a test writes: nothing is kept back by min.compaction.lag.ms.
NOW = 4_000_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(str(tmp_path))


def run(log: Log, now: int = NOW, force: bool = False, **settings: object) -> CompactionResult:
    return compact(log.root, upkeep(**settings), now, lambda _: None, force)


# --- what stays -----------------------------------------------------------------------------------


def test_the_newest_record_of_a_key_stays_with_its_log_offset(log: Log):
    log.append(commit("g", 1, 10), commit("g", 2, 20), commit("g", 7, 20, ("t", 1)))
    log.append(stored("g", 1, 30), stored("g", 2, 40), commit("other", 5, 50))
    log.roll()
    log.append(commit("g", 9, 60))
    result = run(log)
    expected = [log.records[i] for i in (1, 2, 4, 5, 6)]
    assert log.read() == sorted(expected, key=lambda r: (r.partition, r.log_offset))
    assert (result.records_before, result.records_after) == (6, 4)
    assert result.bytes_after > 0
    assert result.skipped is None


def test_survivors_lie_in_the_clean_segment_and_the_active_one_is_left_alone(log: Log):
    for segment in range(3):
        log.append(commit("g", segment, segment))
        log.append(commit("h", segment, segment))
        log.roll()
    log.append(commit("g", 9, 9))
    before = {path for path in DeltaTable(log.uri).file_uris() if "segment=3" in path}
    run(log)
    assert log.segments() == {-1, 3}
    after = DeltaTable(log.uri).file_uris()
    assert {path for path in after if "segment=3" in path} == before
    assert len(after) == 2


def test_survivors_are_in_the_order_of_the_log_with_every_column(log: Log):
    for at in range(9):
        log.append(commit("ggg", at, at, ("t", at)), commit("g", at, at, ("t", 8 - at)))
    log.roll()
    log.append(commit("g", 9, 9))
    run(log)
    (clean,) = (path for path in DeltaTable(log.uri).file_uris() if "segment=-1" in path)
    rows = pq.read_table(clean)
    assert set(rows.column_names) == set(OFFSETS_TOPIC.schema.names) - {"segment"}
    places = list(zip(rows["partition"].to_pylist(), rows["log_offset"].to_pylist(), strict=True))
    assert len(places) == 18
    assert places == sorted(places)


def test_one_commit_takes_the_segments_out_and_the_survivors_in(log: Log):
    log.append(commit("g", 1, 1), commit("g", 2, 2))
    log.roll()
    log.append(commit("g", 3, 3))
    version = DeltaTable(log.uri).version()
    run(log)
    commits = DeltaTable(log.uri).history()
    assert next(c["version"] for c in commits if c["operation"] == "DELETE") == version + 1


def test_a_record_superseded_only_in_the_active_segment_stays(log: Log):
    log.append(commit("g", 1, 1))
    log.roll()
    log.append(commit("g", 2, 2))
    run(log)
    assert log.read() == log.records


@pytest.mark.slow
def test_a_later_compaction_cleans_the_clean_segment_with_the_new_ones(log: Log):
    for offset in range(4):
        log.append(commit("g", offset, offset), commit(f"g{offset}x", 1, 1))
        log.roll()
        log.append(stored("g", offset, offset))
        run(log, force=True)
    assert [
        r.offset_commit.offset for r in log.read() if r.group_id == "g" and r.offset_commit
    ] == [3]
    assert len([r for r in log.read() if r.group_id != "g"]) == 4


def member(key: bytes, value: bytes | None, at: int) -> CoordinatorRecord:
    """A record of a kind that is not known here, as Kafka's type 5 of a consumer group's member."""
    return CoordinatorRecord(1, "member", "g", at, key=b"\0\5" + key, value=value)


def test_records_of_unknown_kinds_are_compacted_by_their_key_and_have_tombstones(log: Log):
    log.append(member(b"one", b"1", 1), member(b"two", b"2", 1), member(b"two", b"22", 2))
    log.roll()
    log.append(commit("g", 1, 1))
    first = run(log)
    kept = [(r.key, r.value) for r in log.read() if r.record_type == "member"]
    assert kept == [(b"\0\5one", b"1"), (b"\0\5two", b"22")]
    log.append(member(b"one", None, NOW))
    log.roll()
    log.append(commit("g", 1, 1))
    young = run(log, force=True)
    kept = [(r.key, r.value) for r in log.read() if r.record_type == "member"]
    assert kept == [(b"\0\5two", b"22"), (b"\0\5one", None)], "a follower is to see it"
    log.append(commit("g", 1, 1))
    log.roll()
    log.append(commit("g", 1, 1))
    old = run(log, NOW + DAY_MS + 1, force=True)
    kept = [(r.key, r.value) for r in log.read() if r.record_type == "member"]
    assert kept == [(b"\0\5two", b"22")]
    assert [result.tombstones for result in (first, young, old)] == [0, 0, 1]


def test_a_tombstone_stays_while_an_older_record_of_its_key_is_elsewhere(log: Log):
    log.append(commit("h", 1, 1))
    log.roll()
    log.append(member(b"one", b"1", 1), member(b"two", b"2", 1))
    log.append_rows([msgspec.structs.replace(member(b"one", None, 2), log_offset=7)])
    log.append_rows([msgspec.structs.replace(member(b"two", None, 2), log_offset=8)])
    log.roll()
    log.append_rows([msgspec.structs.replace(member(b"one", b"0", 1), log_offset=3)])
    assert run(log).tombstones == 1
    assert [r.log_offset for r in log.read() if r.is_tombstone] == [7]


def test_records_without_a_key_go_and_are_counted(log: Log, caplog: pytest.LogCaptureFixture):
    log.append(commit("g", 1, 1))
    broken = (
        CoordinatorRecord(1, None, "g", 1, 5),
        CoordinatorRecord(1, "offset_commit", "g", 1, None),
    )
    log.append_rows(list(broken))
    log.roll()
    log.append(commit("g", 2, 2))
    assert run(log).invalid == 2
    assert log.read() == log.records
    assert "2 records without a key" in caplog.text


def test_columns_of_others_come_through_and_files_without_them_too(log: Log):
    log.append(commit("f", 1, 1))
    rows = to_arrow(
        OFFSETS_TOPIC,
        [msgspec.structs.replace(commit("h", 1, 1), log_offset=1)],
        {"segment": pa.array([0], pa.int64())},
    ).append_column("theirs", pa.array(["x"]))
    write_deltalake(log.uri, rows, mode="append", schema_mode="merge")
    log = Log(log.root)
    log.segment = 1
    log.append(commit("h", 2, 2))
    run(log)
    theirs = DeltaTable(log.uri).to_pyarrow_table().column("theirs").to_pylist()
    assert sorted(theirs, key=str) == [None, None, "x"]


# --- tombstones -----------------------------------------------------------------------------------


def test_a_tombstone_stays_for_delete_retention_and_then_goes(log: Log):
    log.append(commit("g", 1, NOW - 3 * DAY_MS), commit("g", None, NOW - 2 * DAY_MS))
    log.append(stored("g", 1, NOW - 3 * DAY_MS), stored("g", None, NOW - 2 * DAY_MS))
    log.append(commit("h", None, NOW - DAY_MS + 1))
    log.roll()
    log.append(commit("i", 1, NOW))
    result = run(log)
    assert [r.group_id for r in log.read()] == ["h", "i"]
    assert result.tombstones == 2


def test_a_tombstone_stays_while_an_older_record_of_its_key_is_not_cleaned(log: Log):
    # Two coordinators: one still wrote to the segment that the other had left behind.
    log.append(commit("h", 5, NOW - 3 * DAY_MS))
    log.roll()
    late, dead = log.records.pop(), commit("h", None, NOW - 2 * DAY_MS)
    log.append_rows([msgspec.structs.replace(late, log_offset=1)])
    log.segment = 0
    log.append_rows([msgspec.structs.replace(dead, log_offset=2)])
    assert run(log).tombstones == 0
    assert [r.log_offset for r in log.read()] == [1, 2]


# --- when -----------------------------------------------------------------------------------------


def test_nothing_is_closed_nothing_is_done(log: Log):
    log.append(commit("g", 1, 1), commit("g", 2, 2))
    assert "no segment was closed" in str(run(log, force=True).skipped)
    assert len(log.read()) == 2


def test_an_empty_topic_is_skipped(log: Log):
    assert run(log).skipped is not None


def test_more_than_the_ratio_must_be_dirty_unless_forced(log: Log):
    log.append(*(commit(f"group-{i}", i, i) for i in range(4)))
    log.roll()
    log.append(commit("group-0", 9, 9), commit("group-1", 9, 9))
    run(log)
    log.roll()
    log.append(commit("group-0", 10, 10))
    skipped = run(log, min_cleanable_dirty_ratio=0.5).skipped
    assert skipped == "33% of the records are dirty, not more than 50%"
    assert run(log, min_cleanable_dirty_ratio=0.33).skipped is None
    log.roll()
    log.append(commit("group-0", 11, 11))
    assert run(log, force=True).skipped is None


def test_young_segments_wait_for_the_compaction_lag(log: Log):
    log.append(commit("g", 1, 1), commit("g", 2, 2))
    log.roll()
    log.append(commit("g", 3, 3))
    written = data_files(DeltaTable(log.uri))[0].modified_ms
    assert run(log, now=written + 999, force=True, min_compaction_lag_ms=1000).skipped
    assert not run(log, now=written + 1000, min_compaction_lag_ms=1000).skipped


def test_what_lies_behind_a_young_segment_waits_with_it():
    """A clock that stepped back has dated the later one earlier."""
    ages = {0: 5_000, 1: 10, 2: 5_000, 3: 0}
    files = [DataFile(str(n), 1, NOW - age, 1, {"segment": str(n)}) for n, age in ages.items()]
    found = segments(files, 1_000, NOW)
    assert [file.path for file in found.dirty] == ["0"]
    assert [file.path for file in found.rest] == ["1", "2", "3"]


# --- history --------------------------------------------------------------------------------------


def test_superseded_commits_move_to_the_history(log: Log):
    log.append(*(commit("g", i, NOW - HOUR_MS + i) for i in range(3)), stored("g", 1, 1))
    log.append(stored("g", 2, 2))
    log.roll()
    log.append(commit("g", 3, NOW))
    assert run(log).history == 2
    assert log.superseded() == log.records[:2]


def test_history_goes_back_to_what_was_in_force_at_its_start(log: Log):
    ages = [20, 10, 8, 2, 1]
    log.append(*(commit("g", i, NOW - age * DAY_MS) for i, age in enumerate(ages)))
    log.append(commit("dead", 1, NOW - 9 * DAY_MS), commit("dead", None, NOW - 3 * DAY_MS))
    log.roll()
    log.append(commit("g", 9, NOW))
    run(log)
    # Eight days ago is in force a week ago; the tombstone that went says when "dead" went.
    assert log.superseded() == sorted(
        [*log.records[2:4], *log.records[5:7]], key=lambda r: (r.partition, r.log_offset)
    )


def test_without_a_retention_there_is_no_history(log: Log):
    log.append(commit("g", 1, NOW), commit("g", 2, NOW))
    log.roll()
    log.append(commit("g", 3, NOW))
    assert run(log, offsets_history_retention_ms=0).history == 0
    assert log.superseded() == []


class Killed(BaseException):
    """Not an error that anybody handles."""


@pytest.mark.parametrize("point", ["write_history", "write_survivors"])
@pytest.mark.parametrize("committed", [False, True])
def test_killed_at_any_point_and_run_again_it_gives_the_same(
    log: Log, monkeypatch: pytest.MonkeyPatch, point: str, committed: bool
):
    log.append(*(commit("g", i, NOW - HOUR_MS + i) for i in range(3)))
    log.roll()
    log.append(commit("h", 1, NOW))
    with monkeypatch.context() as patch:
        original = TableFiles.rewrite

        def rewrite(self: TableFiles, *arguments: object, **options: object) -> None:
            is_history = "offsets_history" in self.handle.table_uri
            if is_history != (point == "write_history"):
                return original(self, *arguments, **options)
            if committed:
                original(self, *arguments, **options)
            raise Killed

        patch.setattr(TableFiles, "rewrite", rewrite)
        with pytest.raises(Killed):
            run(log)
    # More is written, and more is to be cleaned, before anybody comes back to it.
    log.append(commit("g", 5, NOW))
    log.roll()
    log.append(commit("h", 2, NOW))
    run(log, force=True)
    assert log.superseded() == log.records[:3]
    assert log.read() == sorted(log.records[3:], key=lambda r: (r.partition, r.log_offset))


def test_of_two_compactions_at_once_one_gives_way(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.append(*(commit("g", i, NOW - HOUR_MS + i) for i in range(3)))
    log.roll()
    log.append(commit("h", 1, NOW))
    original = TableFiles.rewrite

    def rewrite(self: TableFiles, *arguments: object, **options: object) -> None:
        monkeypatch.setattr(TableFiles, "rewrite", original)
        run(log)
        original(self, *arguments, **options)

    monkeypatch.setattr(TableFiles, "rewrite", rewrite)
    with pytest.raises(RewriteConflict, match="another process changed"):
        run(log)
    assert log.superseded() == log.records[:2]
    assert log.read() == sorted(log.records[2:], key=lambda r: (r.partition, r.log_offset))


# --- beside others --------------------------------------------------------------------------------


def appended(first: int, segment: int) -> pa.Table:
    records = [
        CoordinatorRecord(
            1, "offset_commit", f"g{i % 7}", NOW, first + i, "t", i % 3, request_id=str(first + i)
        )
        for i in range(5)
    ]
    return to_arrow(OFFSETS_TOPIC, records, {"segment": pa.array([segment] * 5, pa.int64())})


@pytest.mark.slow
def test_a_writer_beside_it_loses_no_append_and_a_reader_no_record(tmp_path: Path):
    make_tables(str(tmp_path))
    ensure_table(str(tmp_path), OFFSETS_HISTORY)
    uri = table_uri(str(tmp_path), OFFSETS_TOPIC)
    appender = Appender(uri)
    tail = follow(table_uri(str(tmp_path), OFFSETS_TOPIC), ["log_offset"])
    appends, failures, compactions = 18, [], 0
    enough = threading.Event()

    def write() -> None:
        for i in range(appends):
            try:
                assert appender.append(appended(5 * i, i // 6), "query", i)
            except Exception as error:
                failures.append(error)
            enough.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        result = compact(str(tmp_path), upkeep(min_cleanable_dirty_ratio=0.0), NOW, lambda _: None)
        compactions += result.skipped is None
    writer.join()
    compact(str(tmp_path), upkeep(), NOW, lambda _: None, force=True)
    assert failures == []
    seen = tail.poll()
    assert seen is not None
    assert seen.column("log_offset").to_pylist() == list(range(5 * appends))
    kept = pa.concat_tables(
        DeltaTable(table_uri(str(tmp_path), table)).to_pyarrow_table(columns=["log_offset"])
        for table in (OFFSETS_TOPIC, OFFSETS_HISTORY)
    )
    # They are tombstones, none of them due: what is not in the topic is in the history.
    assert sorted(kept.column("log_offset").to_pylist()) == list(range(5 * appends))


def test_elsewhere_files_come_and_go_by_the_store(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.append(commit("g", 1, NOW), commit("g", 2, NOW))
    log.roll()
    log.append(commit("h", 1, NOW))
    monkeypatch.setattr("group_coordinator.pipeline.delta.table_files.local_folder", lambda _: None)
    run(log)
    assert log.read() == sorted(log.records[1:], key=lambda r: (r.partition, r.log_offset))
    assert log.superseded() == log.records[:1]


# --- what SQL sees --------------------------------------------------------------------------------


def test_offsets_as_of_a_time_are_one_query_before_and_after_compaction(log: Log):
    log.append(*(commit("g", i, NOW - (4 - i) * HOUR_MS) for i in range(4)))
    log.append(commit("g", None, NOW))
    log.roll()
    log.append(commit("h", 7, NOW - HOUR_MS))

    def told() -> list[list[tuple[object, ...]]]:
        catalog = Catalog(log.root)
        asked = "SELECT group_id, committed_offset FROM offsets_as_of(epoch_ms(?)) ORDER BY 1"
        times = [NOW - hours * HOUR_MS for hours in (5, 4, 3, 1, 0)]
        return [catalog.query(asked, [at]).rows for at in times]

    before = told()
    assert before == [[], [("g", 0)], [("g", 1)], [("g", 3), ("h", 7)], [("h", 7)]]
    run(log, delete_retention_ms=0)
    assert told() == before


def test_history_tells_each_commit_once_also_while_it_is_in_both_tables(log: Log):
    log.append(commit("g", 1, NOW - HOUR_MS), commit("g", 2, NOW))
    log.roll()
    log.append(commit("h", 1, NOW))
    history = to_arrow(OFFSETS_HISTORY, log.records[:1])
    write_deltalake(ensure_table(log.root, OFFSETS_HISTORY), history, mode="append")
    rows = Catalog(log.root).query(
        "SELECT committed_offset, previous_offset FROM offset_history WHERE group_id = 'g' "
        "ORDER BY log_offset"
    )
    assert rows.rows == [(1, None), (2, 1)]
