"""Commits in an object store: each belongs to one writer, whatever became of the store's answers.

A local folder stands for the store, by the same library; `tests/object_store` asks an S3 server.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import PyFileSystem

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import checkpoint as checkpoints
from group_coordinator.pipeline.delta import log as logs
from group_coordinator.pipeline.delta import log_trim, object_store, writer
from group_coordinator.pipeline.delta import table as opening
from group_coordinator.pipeline.delta.appender import Appender, Epoch, FencedError
from group_coordinator.pipeline.delta.bucket import StoreError
from group_coordinator.pipeline.delta.checkpoint import checkpoint
from group_coordinator.pipeline.delta.commit import Changes, Commit, Move, txn_action
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.followed import TableTail
from group_coordinator.pipeline.delta.identity import (
    STORE_CHECK_S,
    SameTable,
    TableReplacedError,
)
from group_coordinator.pipeline.delta.log import LogGone, open_log
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.delta.store_files import StoreFiles
from group_coordinator.pipeline.delta.table import decode_last_checkpoint
from group_coordinator.pipeline.delta.writer import AppendConflict, Writer

LOST = StoreError("the connection was closed before the answer came")


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    monkeypatch.setattr(object_store, "back_off", lambda _attempt: None)
    monkeypatch.setattr(object_store, "RETRY_BUDGET_S", 0.0)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch) -> None:
    """Have every log read and written as one that is not in a local folder."""
    for module in (opening, log_trim, checkpoints):
        monkeypatch.setattr(module, "local_folder", lambda _uri: None)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    return str(tmp_path / "t")


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What was asked of the store: the verb and the file's name without random parts."""
    made: list[str] = []

    def note(verb: str, method: str) -> None:
        function = getattr(ObjectStore, method)

        def noting(folder: ObjectStore, *arguments, **named):
            made.append(verb)
            return function(folder, *arguments, **named)

        monkeypatch.setattr(ObjectStore, method, noting)

    for verb, method in (
        ("GET", "read"),
        ("PUT", "write"),
        ("PUT", "upload"),
        ("PUT if absent", "put_absent"),
        ("HEAD", "look_up"),
        ("HEAD", "stamp"),
        ("LIST", "list"),
        ("DELETE", "delete"),
    ):
        note(verb, method)
    return made


class Clocks:
    """Clocks that a test sets."""

    def __init__(self) -> None:
        self.steady_s, self.wall = 100.0, 1_800_000_000_000

    def monotonic_s(self) -> float:
        return self.steady_s

    def wall_ms(self) -> int:
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.steady_s += seconds


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def rows(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table().column("n").to_pylist())


def files(uri: str) -> int:
    return len(list(Path(uri).glob("*.parquet")))


def commits(uri: str) -> int:
    return len(list(Path(uri, "_delta_log").glob("*.json")))


def answer_lost(monkeypatch, times: int, done: Callable[[int], bool] = lambda _call: True) -> None:
    """Have the store lose its answers to so many creations, of which it has `done` some."""
    create, calls = ObjectStore.put_absent, iter(range(1000))

    def losing(folder: ObjectStore, path: str, content: bytes) -> None:
        call = next(calls)
        if call >= times or done(call):
            create(folder, path, content)
        if call < times:
            raise LOST

    monkeypatch.setattr(ObjectStore, "put_absent", losing)


# --- what an append costs -------------------------------------------------------------------------


def test_an_append_is_two_requests(uri, asked):
    appender = Appender(uri)
    assert appender.append(numbers(1))
    del asked[:]
    assert appender.append(numbers(2))
    assert appender.append(numbers(3))
    assert asked == ["PUT", "PUT if absent"] * 2
    assert rows(uri) == [1, 2, 3]


def test_a_commit_that_took_long_has_not_seen_the_end_of_the_log(uri, asked, monkeypatch):
    """The end is as old as the beginning of the PUT: a clean-up may have come behind it."""
    clocks, create = Clocks(), ObjectStore.put_absent

    def slow(folder: ObjectStore, path: str, content: bytes) -> None:
        create(folder, path, content)
        clocks.steady_s += ObjectStore.costs.freed_s

    with clock.use(clocks):
        appender = Appender(uri)
        appender.append(numbers(1))
        with monkeypatch.context() as slowed:
            slowed.setattr(ObjectStore, "put_absent", slow)
            appender.append(numbers(2))
        del asked[:]
        appender.append(numbers(3))
    assert asked[:2] == ["PUT", "GET"], "the log is looked at before the next commit"


def test_an_append_compares_the_table_every_ten_seconds(uri, asked):
    clocks = Clocks()
    with clock.use(clocks):
        appender = Appender(uri)
        appender.append(numbers(1))
        clocks.steady_s += STORE_CHECK_S
        del asked[:]
        for number in (2, 3):
            appender.append(numbers(number))
        assert asked == ["PUT", "HEAD", "PUT if absent", "PUT", "PUT if absent"]
        clocks.steady_s += STORE_CHECK_S
        shutil.rmtree(uri)
        DeltaTable.create(uri, pa.schema([("n", pa.int64())]))
        with pytest.raises(TableReplacedError):
            appender.append(numbers(4))
    assert commits(uri) == 1


def test_a_follower_compares_the_table_every_ten_seconds(uri, asked):
    clocks = Clocks()
    with clock.use(clocks):
        tail = TableTail(PyFileSystem(StoreFiles(uri)), 0, ["n"], SameTable(uri, at=0))
        del asked[:]
        for _ in range(3):
            assert tail.poll() is None
        assert "HEAD" not in asked
        for _ in range(2):
            clocks.steady_s += STORE_CHECK_S
            for _ in range(3):
                assert tail.poll() is None
        assert asked.count("HEAD") == 2


def test_an_append_without_rows_is_one(uri, asked):
    appender = Appender(uri)
    appender.append(None, "lease", 1)
    del asked[:]
    appender.append(None, "lease", 2)
    assert asked == ["PUT if absent"]
    assert Appender(uri).last_version("lease") == 2


def test_whoever_was_slower_reads_what_the_faster_one_wrote(uri, asked):
    mine, other = Appender(uri), Appender(uri)
    mine.append(numbers(1))
    other.append(numbers(2))
    del asked[:]
    assert mine.append(numbers(3))
    # The refused commit, whose it is, what comes after it, and the next attempt.
    assert asked == ["PUT", "PUT if absent", "GET", "GET", "GET", "PUT if absent"]
    assert rows(uri) == [1, 2, 3]


def test_a_commit_is_refused_by_what_the_log_says_and_not_by_what_it_said(uri):
    """Its caller has seen more of the log than the writer."""
    mine, other = Writer(uri, flushed=True), Appender(uri)
    assert mine.commit(Changes(moves=[Move("run", None, 1)])) == 1
    other.append(None, "run", 2)
    assert mine.commit(Changes(moves=[Move("run", 2, 3)])) == 3
    other.append(numbers(1))
    assert mine.commit(Changes(remove=data_files(DeltaTable(uri)))) == 5
    assert rows(uri) == []
    assert mine.commit(Changes(moves=[Move("run", 2, 7)])) == {"run": 3}


def test_a_late_commit_is_not_taken_for_the_end_of_the_log(uri):
    """One stood still and committed below the clean-up, where another one reads on."""
    clocks = Clocks()
    with clock.use(clocks):
        idle, busy = Appender(uri), Appender(uri)
        assert idle.last_version("lease") == -1
        for n in range(4):
            busy.append(numbers(n))
        DeltaTable(uri).create_checkpoint()
        for version in range(4):
            logs.commit_path(Path(uri, "_delta_log"), version).unlink()
        late = Commit([txn_action("lease", 7, 0)])
        logs.commit_path(Path(uri, "_delta_log"), 1).write_bytes(late.content)
        clocks.steady_s += 3_600
        assert idle.append(numbers(9))
        assert idle.last_version("lease") == -1
    assert rows(uri) == [0, 1, 2, 3, 9]


def test_what_a_later_epoch_wrote_meanwhile_fences(uri):
    earlier, later = Appender(uri, Epoch(1, 3)), Appender(uri)
    earlier.append(numbers(1), "query", 0)
    later.append(None, Epoch(1, 4).app_id, 4)
    with pytest.raises(FencedError):
        earlier.append(numbers(2), "query", 1)
    assert rows(uri) == [1]
    assert files(uri) == 1, "what it had written is deleted"


def test_a_batch_that_another_process_wrote_is_not_written_again(uri):
    mine, other = Appender(uri), Appender(uri)
    assert mine.last_version("query") == -1
    assert other.append(numbers(1), "query", 0)
    assert not mine.append(numbers(1), "query", 0)
    assert rows(uri) == [1]
    assert files(uri) == 1


def test_a_folder_goes_to_another_process_without_its_connections(uri):
    folder = ObjectStore(uri)
    content = pickle.dumps(folder)
    assert len(content) < 300
    again = pickle.loads(content)
    assert (again.uri, again.bucket) == (folder.uri, folder.bucket)
    assert again.read("_delta_log/00000000000000000000.json") is not None


# --- answers that do not come -------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_commit_whose_answers_were_lost_is_there_once(uri, monkeypatch, times):
    appender = Appender(uri)
    answer_lost(monkeypatch, times)
    assert appender.append(numbers(1))
    assert appender.append(numbers(2))
    assert rows(uri) == [1, 2]
    assert commits(uri) == 3


def test_a_commit_that_was_not_done_is_tried_again(uri, monkeypatch):
    appender = Appender(uri)
    answer_lost(monkeypatch, 2, done=lambda _call: False)
    assert appender.append(numbers(1))
    assert rows(uri) == [1]


def test_a_commit_to_a_store_that_is_silent_for_long_is_made_when_it_answers(uri, monkeypatch):
    monkeypatch.setattr(object_store, "RETRY_BUDGET_S", 3600.0)
    appender = Appender(uri)
    answer_lost(monkeypatch, 50, done=lambda _call: False)
    assert appender.append(numbers(1))
    assert rows(uri) == [1]
    assert commits(uri) == 2


def test_a_commit_that_the_store_never_answers_is_unknown_and_its_file_stays(uri, monkeypatch):
    appender = Appender(uri)
    with monkeypatch.context() as broken:
        answer_lost(broken, 100, done=lambda _call: False)
        with pytest.raises(CommitStateUnknown, match=r"version 1 .*connection was closed"):
            appender.append(numbers(1), "query", 0)
    assert files(uri) == 1
    assert appender.append(numbers(1), "query", 0)
    assert rows(uri) == [1]


def test_of_an_unknown_commit_that_is_there_the_repetition_writes_nothing(uri, monkeypatch):
    appender = Appender(uri)
    appender.append(numbers(0), "query", 0)
    with monkeypatch.context() as broken:
        answer_lost(broken, 100, done=lambda call: call == 0)
        broken.setattr(ObjectStore, "read", lambda *_: (_ for _ in ()).throw(LOST))
        with pytest.raises(CommitStateUnknown):
            appender.append(numbers(1), "query", 1)
    assert not appender.append(numbers(1), "query", 1)
    assert rows(uri) == [0, 1]


def test_a_store_that_refuses_leaves_no_file(uri, monkeypatch):
    appender = Appender(uri)

    def refuse(*_: object) -> None:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(ObjectStore, "put_absent", refuse)
    with pytest.raises(PermissionError, match="AccessDenied"):
        appender.append(numbers(1))
    assert files(uri) == 0


def test_two_commits_of_one_content_are_told_apart(uri, monkeypatch):
    """Two nodes say the same in one millisecond: of one version only one of them is the writer."""
    monkeypatch.setattr("group_coordinator.pipeline.delta.commit.clock_ms", lambda: 5)
    first, second = (Commit([txn_action("lease", 7, 0)]) for _ in range(2))
    log = open_log(uri)
    log.create(first, 1)
    log.create(first, 1)
    with pytest.raises(FileExistsError, match="another writer created"):
        log.create(second, 1)
    assert first.may_be_committed and not second.may_be_committed


def test_losing_every_attempt_is_an_error(uri, monkeypatch):
    appender = Appender(uri)
    monkeypatch.setattr("group_coordinator.pipeline.delta.writer.ATTEMPTS", 3)
    monkeypatch.setattr("group_coordinator.pipeline.delta.writer.back_off", lambda _attempt: None)
    create = ObjectStore.put_absent

    def taken(folder: ObjectStore, path: str, content: bytes) -> None:
        other = Commit([txn_action("other", 1, 0)])
        create(folder, path, other.content)
        create(folder, path, content)

    monkeypatch.setattr(ObjectStore, "put_absent", taken)
    with pytest.raises(AppendConflict, match=r"committed first to .* 3 times"):
        appender.append(numbers(1))
    assert files(uri) == 0


# --- logs that were cleaned up ------------------------------------------------------------------


def clean_up(uri: str) -> None:
    handle = DeltaTable(uri)
    handle.create_checkpoint()
    for commit in Path(uri, "_delta_log").glob("*.json"):
        if int(commit.stem) < handle.version():
            commit.unlink()


@pytest.mark.parametrize("sleeper", ["steady_s", "wall"], ids=["process", "machine"])
def test_who_slept_past_a_clean_up_does_not_commit_into_its_gap(uri, sleeper):
    """The version after the last one that it knows is free again, and nobody reads it any more."""
    clocks = Clocks()
    with clock.use(clocks):
        asleep, other = Appender(uri), Appender(uri)
        asleep.append(numbers(0))
        for number in (1, 2, 3):
            other.append(numbers(number))
        clean_up(uri)
        seconds = (
            ObjectStore.costs.freed_s if sleeper == "steady_s" else ObjectStore.costs.freed_s * 1000
        )
        setattr(clocks, sleeper, getattr(clocks, sleeper) + type(clocks.wall)(seconds))
        assert asleep.append(numbers(4))
    assert rows(uri) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("behind", ["nothing", "another late commit"])
def test_who_slept_within_a_commit_says_that_its_outcome_is_unknown(uri, monkeypatch, behind):
    clocks = Clocks()
    with clock.use(clocks):
        asleep, other = Appender(uri), Appender(uri)
        asleep.append(numbers(0), "query", 0)
        create = ObjectStore.put_absent

        def slow(folder: ObjectStore, path: str, content: bytes) -> None:
            slowed.undo()
            for number in (1, 2, 3):
                other.append(numbers(number))
            clean_up(uri)
            clocks.steady_s += ObjectStore.costs.freed_s
            if behind != "nothing":
                # Of a writer that stood still as well, and wakes up first.
                create(folder, f"{int(path.removesuffix('.json')) - 1:020}.json", content)
            create(folder, path, content)

        with monkeypatch.context() as slowed:
            slowed.setattr(ObjectStore, "put_absent", slow)
            with pytest.raises(CommitStateUnknown, match="was cleaned up beyond it meanwhile"):
                asleep.append(numbers(4), "query", 1)
        assert asleep.append(numbers(4), "query", 1), "what nobody reads is written again"
    assert rows(uri) == [0, 1, 2, 3, 4]


def test_a_reader_that_is_behind_a_clean_up_is_told(uri):
    Appender(uri).append(numbers(1))
    Appender(uri).append(numbers(2))
    clean_up(uri)
    with pytest.raises(LogGone, match="no longer has version 1"):
        open_log(uri).next_commit(0)
    assert open_log(uri).next_commit(2) is None


def test_a_clock_that_is_set_back_only_makes_the_log_be_looked_at_again(uri, asked):
    clocks = Clocks()
    with clock.use(clocks):
        appender = Appender(uri)
        appender.append(numbers(1))
        del asked[:]
        clocks.wall -= 86_400_000
        appender.append(numbers(2))
        # The next commit, the note of the newest checkpoint, and the commit before.
        assert asked == ["PUT", "GET", "GET", "GET", "PUT if absent"]
    assert rows(uri) == [1, 2]


# --- keeping logs short -------------------------------------------------------------------------


def test_a_consumed_log_is_trimmed_from_its_beginning(uri, asked):
    appender = Appender(uri)
    for number in range(6):
        appender.append(numbers(number))
    assert trim_log(uri, 5, -0.001) == 0, "no checkpoint stands for it"
    checkpoint(uri, 6, {}, False)
    assert trim_log(uri, 5) == 0, "an hour old is what may go"
    assert trim_log(uri, 3, -0.001) == 3
    del asked[:]
    assert trim_log(uri, 3, -0.001) == 0
    assert asked == ["GET", "HEAD", "LIST"]
    assert commits(uri) == 4
    assert rows(uri) == list(range(6))


def test_a_checkpoint_is_written_now_and_then_and_the_log_cleaned_up_more_seldom(uri, monkeypatch):
    done: list[tuple[object, ...]] = []
    monkeypatch.setattr(writer, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(
        "group_coordinator.pipeline.delta.writer.checkpoint",
        lambda uri, version, _known, cleans_up: done.append((uri, version, cleans_up)),
    )
    monkeypatch.setattr("group_coordinator.pipeline.background.run", lambda _name, work: work())
    clocks = Clocks()
    with clock.use(clocks):
        appender = Appender(uri)
        for number in range(4):
            appender.append(numbers(number))
        clocks.steady_s += checkpoints.CLEAN_UP_S
        for number in range(4):
            appender.append(numbers(number))
    assert done == [(uri, 2, False), (uri, 4, False), (uri, 6, True), (uri, 8, False)]


def test_a_store_that_fails_a_checkpoint_is_no_failure_of_the_append(uri, monkeypatch, caplog):
    monkeypatch.setattr(ObjectStore, "read", lambda *_: (_ for _ in ()).throw(LOST))
    checkpoint(uri, 100, {}, False)
    assert "could not write a Delta checkpoint" in caplog.text


def checkpoint_of(uri: str) -> int:
    note = decode_last_checkpoint(Path(uri, "_delta_log", "_last_checkpoint").read_bytes())
    assert note is not None
    return note.version


def test_a_delta_checkpoint_asks_for_no_commit_that_was_read_or_written_here(uri, asked):
    appender = Appender(uri)
    log = appender._writer.snapshot.log
    for number in range(3):
        appender.append(numbers(number), "application", number)
    write_deltalake(uri, numbers(3), mode="append")
    appender.append(numbers(4))
    known = log.recent
    assert sorted(known) == [0, 1, 2, 3, 4, 5]
    del asked[:]
    checkpoint(uri, 5, known, False)
    assert asked == ["GET", "PUT", "GET", "PUT"], "note, checkpoint, note twice"
    # The first checkpoint, one further commit, and nothing of what comes before.
    appender.append(numbers(5))
    checkpoint(uri, 6, log.recent, False)
    appender.append(numbers(6))
    for version in range(7):
        Path(uri, "_delta_log", f"{version:020}.json").unlink()
    assert checkpoint_of(uri) == 6
    assert rows(uri) == list(range(7))
    assert DeltaTable(uri).transaction_version("application") == 2
    del asked[:]
    checkpoint(uri, 7, {}, False)
    assert asked == ["GET", "GET", "GET", "PUT", "GET", "PUT"]
    assert rows(uri) == list(range(7))


def test_a_delta_checkpoint_is_what_delta_rs_writes(uri, tmp_path):
    appender = Appender(uri)
    for number in range(5):
        appender.append(numbers(number), "application", number)
    DeltaTable(uri).optimize.compact()
    copy = tmp_path / "copy"
    shutil.copytree(uri, copy)
    DeltaTable(copy).create_checkpoint()
    checkpoint(uri, 6, {}, False)
    ours, theirs = (
        pq.read_table(Path(each, "_delta_log", f"{6:020}.checkpoint.parquet"))
        for each in (uri, copy)
    )
    assert ours.schema == theirs.schema
    assert sorted(map(str, ours.to_pylist())) == sorted(map(str, theirs.to_pylist()))


def test_the_note_of_a_later_delta_checkpoint_stays(uri, monkeypatch):
    """Whoever is late may write its checkpoint, but nobody is sent back to it."""
    appender = Appender(uri)
    for number in range(4):
        appender.append(numbers(number))
    upload = ObjectStore.upload

    def late(folder: ObjectStore, local: Path, path: str) -> None:
        monkeypatch.setattr(ObjectStore, "upload", upload)
        checkpoint(uri, 4, {}, False)
        upload(folder, local, path)

    monkeypatch.setattr(ObjectStore, "upload", late)
    checkpoint(uri, 2, {}, False)
    assert checkpoint_of(uri) == 4
    assert rows(uri) == list(range(4))


def test_a_delta_checkpoint_is_not_made_of_a_log_with_a_gap(uri, caplog):
    appender = Appender(uri)
    for number in range(3):
        appender.append(numbers(number))
    Path(uri, "_delta_log", f"{2:020}.json").unlink()
    checkpoint(uri, 3, {}, False)
    assert f"{2:020}.json does not exist" in caplog.text
    assert not Path(uri, "_delta_log", "_last_checkpoint").exists()


def test_large_commits_and_old_ones_are_not_kept(uri, monkeypatch):
    monkeypatch.setattr(logs, "_RECENT", 2)
    appender = Appender(uri)
    log = appender._writer.snapshot.log
    for number in range(3):
        appender.append(numbers(number))
    assert sorted(log.recent) == [2, 3]
    monkeypatch.setattr(logs, "_RECENT_BYTES", 1)
    appender.append(numbers(3))
    assert sorted(log.recent) == [2, 3]
