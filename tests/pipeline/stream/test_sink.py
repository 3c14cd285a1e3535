"""A batch is written once, whole, records first; offsets of the log neither skip nor repeat."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import identity, storage
from group_coordinator.pipeline.delta.appender import Appender, Epoch, FencedError, raise_epoch
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.retry_budget import CommitTimeoutError
from group_coordinator.pipeline.delta.storage import CommitStateUnknown, NotFlushed
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import BatchWrittenError, Sink
from group_coordinator.pipeline.stream.spark_engine import root_cause
from group_coordinator.pipeline.tables.store import WRITTEN, ensure_table, last_written
from group_coordinator.schemas.records import GroupEvent
from group_coordinator.schemas.tables import RESPONSES
from tests.pipeline.node.looks import Clock as Clocks
from tests.pipeline.rows import commit_record, counts, output, rows, version

QUERY = "query-id"


class Killed(BaseException):
    """The process is gone."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def sink(root: str, clock: Clock | None = None, planned: int = -1, **settings: int) -> Sink:
    return Sink(root, CoordinatorSettings(**settings), clock or Clock(), planned=planned)


def log_offsets(root: str) -> list[tuple[int, int]]:
    found = rows(root, "offsets_topic")
    return sorted((row["partition"], row["log_offset"]) for row in found)


def test_each_kind_goes_to_its_table(root):
    batch = [output(2, [commit_record(0, 1)], 1, 1), output(1)]
    sink(root).write(batch, QUERY, 0)
    assert counts(root) == {
        "offsets_topic": 1,
        "group_events": 1,
        "rejected_requests": 1,
        "responses": 3,
    }


def test_a_table_without_rows_gets_no_commit(root):
    sink(root).write([output(1)], QUERY, 0)
    assert version(root, "responses") == 1
    assert {version(root, name) for name in ("offsets_topic", "group_events")} == {0}


def test_the_same_batch_again_is_written_once(root):
    batch = [output(2, [commit_record(0, 1), commit_record(7, 1)], 1, 1)]
    mine = sink(root)
    mine.write(batch, QUERY, 0)
    before = counts(root)
    mine.write(batch, QUERY, 0)
    sink(root, planned=0).write(batch, QUERY, 0)
    assert counts(root) == before
    assert log_offsets(root) == [(0, 0), (7, 0)]


def test_another_query_begins_its_batches_anew(root):
    sink(root).write([output(1)], QUERY, 5)
    sink(root).write([output(1)], "another", 0)
    assert counts(root)["responses"] == 2


@pytest.mark.parametrize("crash_before", ["offsets_topic", "group_events", "responses"])
def test_a_batch_cut_off_between_two_tables_is_completed(root, crash_before):
    batch = [output(2, [commit_record(0, 1), commit_record(0, 2)], 1)]
    first = sink(root)
    first.write([output(1, [commit_record(0, 0)])], QUERY, 0)

    def crash(*_: object) -> bool:
        raise Killed

    first._appenders[crash_before].append = crash  # type: ignore[method-assign]
    with pytest.raises(Killed):
        first.write(batch, QUERY, 1)
    assert counts(root)["responses"] == 1, "no answer before all that it depends on"

    second = sink(root, planned=1)
    second.write(batch, QUERY, 1)
    second.write([output(1, [commit_record(0, 3)])], QUERY, 2)
    assert counts(root) == {
        "offsets_topic": 4,
        "group_events": 1,
        "rejected_requests": 0,
        "responses": 4,
    }
    assert log_offsets(root) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_records_are_visible_before_responses(root):
    mine = sink(root)
    seen: list[int] = []
    append = mine._appenders["responses"].append

    def look(*arguments: object) -> bool:
        seen.append(counts(root)["offsets_topic"])
        return append(*arguments)  # type: ignore[arg-type]

    mine._appenders["responses"].append = look  # type: ignore[method-assign]
    mine.write([output(1, [commit_record(0, 1)])], QUERY, 0)
    assert seen == [1]


def test_log_offsets_rise_by_commit_order_in_each_partition(root):
    mine = sink(root)
    mine.write([output(0, [commit_record(0, 1), commit_record(3, 1)])], QUERY, 0)
    mine.write([output(0, [commit_record(3, 2)]), output(0, [commit_record(3, 3)])], QUERY, 1)
    found = {row["offset_commit"]["offset"]: row for row in rows(root, "offsets_topic")}
    assert (found[2]["log_offset"], found[3]["log_offset"]) == (1, 2)
    assert log_offsets(root) == [(0, 0), (3, 0), (3, 1), (3, 2)]


def test_a_new_process_goes_on_where_the_log_ends(root):
    sink(root).write([output(0, [commit_record(3, 1)] * 2)], QUERY, 0)
    sink(root).write([output(0, [commit_record(3, 2), commit_record(4, 2)])], QUERY, 1)
    assert log_offsets(root) == [(3, 0), (3, 1), (3, 2), (4, 0)]


def test_records_of_a_partition_that_was_gained_come_after_its_former_owner_s(root):
    mine, former = sink(root), sink(root)
    former.write([output(0, [commit_record(3, 1)] * 2)], QUERY, 0)
    mine.change(BatchSettings(), {3})
    mine.write([output(0, [commit_record(3, 2)])], "another query", 0)
    assert log_offsets(root) == [(3, 0), (3, 1), (3, 2)]


def segments(root: str) -> list[int]:
    return sorted(row["segment"] for row in rows(root, "offsets_topic"))


def test_a_full_segment_is_closed(root):
    mine = sink(root, segment_bytes=1)
    mine.write([output(0, [commit_record(0, 1)])], QUERY, 0)
    mine.write([output(0, [commit_record(0, 2)])], QUERY, 1)
    assert segments(root) == [0, 1]


def test_an_old_segment_is_closed(root):
    clock = Clock()
    mine = sink(root, clock, segment_ms=100)
    mine.write([output(0, [commit_record(0, 1)])], QUERY, 0)
    clock.now += 99
    mine.write([output(0, [commit_record(0, 2)])], QUERY, 1)
    clock.now += 1
    mine.write([output(0, [commit_record(0, 3)])], QUERY, 2)
    assert segments(root) == [0, 0, 1]


def test_a_new_process_knows_the_active_segment_and_its_size(root):
    first = sink(root, segment_bytes=1)
    first.write([output(0, [commit_record(0, 1)])], QUERY, 0)
    first.write([output(0, [commit_record(0, 2)])], QUERY, 1)
    sink(root).write([output(0, [commit_record(0, 3)])], QUERY, 2)
    sink(root, segment_bytes=1).write([output(0, [commit_record(0, 4)])], QUERY, 3)
    assert segments(root) == [0, 1, 1, 2]


def test_a_large_batch_is_one_commit_of_bounded_row_groups(root, monkeypatch):
    monkeypatch.setattr("group_coordinator.pipeline.stream.sink._PIECE_ROWS", 7)
    monkeypatch.setattr("group_coordinator.pipeline.delta.data_file.ROW_GROUP_BYTES", 500)
    records = [[commit_record(n % 3, n), commit_record(5, n)] for n in range(40)]
    sink(root).write((output(3, each, 2, 1) for each in records), QUERY, 0)
    assert counts(root) == {
        "offsets_topic": 80,
        "group_events": 80,
        "rejected_requests": 40,
        "responses": 120,
    }
    assert {version(root, name) for name in counts(root)} == {1}
    found = sorted(rows(root, "offsets_topic"), key=lambda row: row["log_offset"])
    for partition in (0, 1, 2, 5):
        mine = [row for row in found if row["partition"] == partition]
        assert [row["log_offset"] for row in mine] == list(range(len(mine)))
        committed = [row["offset_commit"]["offset"] for row in mine]
        assert committed == sorted(committed), "in the order of the outputs"
    (file,) = Path(root, "responses").glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups > 10


def test_a_group_s_events_keep_their_order_in_a_large_batch(root, monkeypatch):
    monkeypatch.setattr("group_coordinator.pipeline.stream.sink._PIECE_ROWS", 5)
    names = [f"event {n}" for n in range(12)]
    groups = ("a", "b", "c")
    outputs = [
        GroupOutput([], [], [GroupEvent(5, group, name) for name in names], []) for group in groups
    ]
    sink(root).write(outputs, QUERY, 0)
    found = sorted(rows(root, "group_events"), key=lambda row: row["at"])
    for group in groups:
        assert [row["event"] for row in found if row["group_id"] == group] == names


# --- a machine that was set back -----------------------------------------------------------------


@pytest.mark.parametrize("table", [each.name for each in WRITTEN])
def test_a_batch_that_another_process_wrote_is_not_taken_for_written(root, table):
    """A VM was resumed with an earlier memory: its batch 5 has other requests than the first."""
    resumed = sink(root, planned=4)
    Appender(f"{root}/{table}").append(None, QUERY, 5)
    with pytest.raises(BatchWrittenError, match=f"{table} has batch 5 .* set back") as error:
        resumed.write(WHOLE, QUERY, 5)
    assert root_cause(f"{type(error.value).__module__}.{type(error.value).__name__}: why") == (
        "BatchWrittenError: why"
    ), "the node's last line says why"
    assert counts(root)[table] == counts(root)["responses"] == 0
    assert last_written(root, QUERY) == 6, "so the next start does not run batch 5 again"


def test_a_later_batch_of_another_process_is_not_taken_for_this_one(root):
    resumed = sink(root, planned=4)
    Appender(f"{root}/responses").append(None, QUERY, 9)
    with pytest.raises(BatchWrittenError):
        resumed.write(WHOLE, QUERY, 5)
    assert last_written(root, QUERY) == 9


def test_an_attempt_that_certainly_wrote_nothing_makes_no_batch_ours(root):
    resumed = sink(root, planned=4)
    Appender(f"{root}/offsets_topic").append(None, QUERY, 5)
    failing = failing_commits("offsets_topic", FULL, 2, stands=False)
    with failing as attempts, pytest.raises(BatchWrittenError):
        resumed.write([output(0, [commit_record(0, 1)])], QUERY, 5)
    assert len(attempts) == 3, "the mark for the next start is tried until it is there"


def test_an_epoch_that_was_taken_over_is_the_reason_that_is_given(root):
    resumed = Sink(root, CoordinatorSettings(), epoch=Epoch(1, 4))
    Appender(f"{root}/offsets_topic", Epoch(1, 4)).append(None, QUERY, 5)
    raise_epoch(f"{root}/offsets_topic", Epoch(1, 5))
    with pytest.raises(FencedError):
        resumed.write(WHOLE, QUERY, 5)


# --- a commit that fails ------------------------------------------------------------------------

WHOLE = [output(2, [commit_record(0, 1), commit_record(7, 1)], 1, 1)]
TABLES_OF_WHOLE = ("offsets_topic", "group_events", "rejected_requests", "responses")
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def failing_commits(table: str, error: Exception, times: int, stands: bool) -> Iterator[list[str]]:
    """Have commits to a table fail so often; `stands`: each is in the table all the same.

    Yields the names of the tables of all attempts.
    """
    create, attempts = Log.create, list[str]()

    def creating(self: Log, commit: Commit, version: int) -> None:
        name = Path(self.uri).name
        attempts.append(name)
        fails = name == table and attempts.count(table) <= times
        if stands or not fails:
            create(self, commit, version)
        if fails:
            raise error

    with pytest.MonkeyPatch.context() as patch, clock.use(Clocks()):
        patch.setattr(Log, "create", creating)
        yield attempts


@pytest.mark.parametrize("table", TABLES_OF_WHOLE)
@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_fails_is_tried_again_within_the_batch(root, table, times):
    mine = sink(root)
    with failing_commits(table, FULL, times, stands=False) as attempts:
        mine.write(WHOLE, QUERY, 0)
    assert attempts == [
        name for each in TABLES_OF_WHOLE for name in [each] * (times + 1 if each == table else 1)
    ], "what comes after it waits: nothing is answered meanwhile"
    mine.write([output(0, [commit_record(0, 2)])], QUERY, 1)
    assert counts(root) == {
        "offsets_topic": 3,
        "group_events": 1,
        "rejected_requests": 1,
        "responses": 2,
    }
    assert log_offsets(root) == [(0, 0), (0, 1), (7, 0)]


@pytest.mark.parametrize("table", TABLES_OF_WHOLE)
def test_a_commit_of_which_nobody_knows_whether_it_is_there_is_written_once(root, table):
    """The store did what it was asked and said that it failed. The next records come after it."""
    mine = sink(root)
    with failing_commits(table, CommitStateUnknown("no answer"), 1, stands=True):
        mine.write(WHOLE, QUERY, 0)
    mine.write([output(0, [commit_record(0, 2), commit_record(3, 2)])], QUERY, 1)
    assert counts(root)["responses"] == 2
    assert log_offsets(root) == [(0, 0), (0, 1), (3, 0), (7, 0)]


def test_after_offsets_commit_timeout_ms_the_batch_fails_and_says_why(root, caplog):
    config = GroupCoordinatorConfig(offsets_commit_timeout_ms=300)
    mine = Sink(root, CoordinatorSettings(), config=config)
    why = r"could not write offsets_topic within 300 ms \(offsets.commit.timeout.ms\): .*No space"
    failing = failing_commits("offsets_topic", FULL, 1_000, stands=False)
    with failing as attempts, pytest.raises(CommitTimeoutError, match=why):
        mine.write(WHOLE, QUERY, 0)
    assert set(attempts) == {"offsets_topic"}
    assert set(counts(root).values()) == {0}
    assert sum("retrying" in each.getMessage() for each in caplog.records) == 1
    sink(root).write(WHOLE, QUERY, 0)
    assert log_offsets(root) == [(0, 0), (7, 0)], "the next start writes it"


def test_a_fenced_coordinator_tries_no_commit_again(root):
    zombie = Sink(root, CoordinatorSettings(), epoch=Epoch(1, 4))
    raise_epoch(f"{root}/offsets_topic", Epoch(1, 5))
    failing = failing_commits("responses", FULL, 0, stands=False)
    with failing as attempts, pytest.raises(FencedError):
        zombie.write(WHOLE, QUERY, 0)
    assert attempts == []


def test_the_epoch_is_read_anew_when_a_query_has_ended(root):
    """Spark's own error, of a streaming checkpoint that another start took, says less."""
    zombie = Sink(root, CoordinatorSettings(), epoch=Epoch(1, 4))
    zombie.check_epoch()
    raise_epoch(f"{root}/responses", Epoch(1, 5))
    with pytest.raises(FencedError, match="epoch 5 of node 1 has taken over"):
        zombie.check_epoch()


def test_a_commit_that_could_not_be_forced_to_the_disk_is_not_tried_again(root, monkeypatch):
    """A second fsync may lie. The node ends; its next start opens the table anew."""
    flushed, forced = Sink(root, CoordinatorSettings(log_flush_enable=True)), list[Path]()

    @contextmanager
    def broken(path: Path) -> Iterator[Callable[[], None]]:
        def fail() -> None:
            if path.name != "_delta_log":
                return
            forced.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        yield fail

    monkeypatch.setattr(storage, "opened_to_flush", broken)
    with pytest.raises(NotFlushed, match="may not survive a power loss"):
        flushed.write(WHOLE, QUERY, 0)
    assert forced == [Path(root, "offsets_topic", "_delta_log")]
    assert counts(root)["responses"] == 0


# --- tables that are replaced while a coordinator runs --------------------------------------------


@pytest.mark.parametrize("table", WRITTEN, ids=lambda table: table.name)
def test_a_table_that_was_made_anew_ends_an_idle_coordinator(root, monkeypatch, table):
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    mine = sink(root)
    mine.check_same()
    mine.write([output(1, [commit_record(0, 1)], 1, 1)], QUERY, 0)
    mine.check_same()
    shutil.rmtree(Path(root, table.name))
    mine.check_same()
    ensure_table(root, table)
    with pytest.raises(
        TableReplacedError, match=f"{table.name} was replaced .*Restart this process"
    ):
        mine.check_same()


def test_a_batch_is_not_written_to_a_table_that_was_made_anew(root):
    mine = sink(root)
    mine.write([output(1)], QUERY, 0)
    mine.write([output(1)], QUERY, 1)
    shutil.rmtree(Path(root, "responses"))
    ensure_table(root, RESPONSES)
    with pytest.raises(TableReplacedError, match="responses was replaced"):
        mine.write([output(1)], QUERY, 2)
    assert version(root, "responses") == 0


def test_a_restore_of_the_offsets_topic_ends_the_coordinator(root):
    mine = sink(root)
    for batch_id in range(3):
        mine.write([output(1, [commit_record(0, batch_id)])], QUERY, batch_id)
    DeltaTable(f"{root}/offsets_topic").restore(1)
    before = version(root, "offsets_topic")
    for _ in range(2):
        with pytest.raises(TableReplacedError, match=r"offsets_topic .* RESTORE .*checkpoint"):
            mine.write([output(1, [commit_record(0, 3)])], QUERY, 3)
    assert version(root, "offsets_topic") == before
    sink(root).write([output(1, [commit_record(0, 3)])], "a later start's", 0)
    assert log_offsets(root) == [(0, 0), (0, 1)]


def test_a_restore_is_found_while_there_is_nothing_to_write(root, monkeypatch):
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    mine = sink(root)
    mine.write([output(1, [commit_record(0, 1)])], QUERY, 0)
    mine.check_same()
    DeltaTable(f"{root}/offsets_topic").restore(0)
    with pytest.raises(TableReplacedError, match="RESTORE"):
        mine.check_same()


def test_the_optimization_of_the_offsets_topic_ends_nobody(root, monkeypatch):
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    mine = sink(root)
    for batch_id in range(3):
        mine.write([output(1, [commit_record(0, batch_id)])], QUERY, batch_id)
    DeltaTable(f"{root}/offsets_topic").optimize.compact()
    mine.check_same()
    mine.write([output(1, [commit_record(0, 3)])], QUERY, 3)
    assert len(log_offsets(root)) == 4
