"""A row's partition and offset: what they are, and that nothing changes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.fs import DeltaStorageHandler
from kafka.partitioner.default import murmur2
from pyarrow.fs import PyFileSystem

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic
from group_coordinator.pipeline.topics import (
    OffsetOutOfRange,
    TableTopics,
    create_table_topic,
    index,
    indexer,
    table_log,
)
from group_coordinator.pipeline.topics.definition import read_definitions
from group_coordinator.pipeline.topics.index import Index
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import TOPIC_INDEX, to_arrow
from tests.pipeline.topics.tables import (
    append,
    caught_up,
    define,
    ends,
    everything,
    opened,
    records,
    rows,
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def numbers(topics: TableTopics) -> list[list[str]]:
    """The keys of each partition, in the order of their offsets."""
    return [[(record.key or b"").decode() for record in part] for part in everything(topics)]


def placed(*batches: range, partitions: int = 3) -> list[list[str]]:
    """What Kafka's partitioner makes of the rows of these commits."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    for batch in batches:
        for n in batch:
            found[(murmur2(f"id-{n}".encode()) & 0x7FFFFFFF) % partitions].append(f"id-{n}")
    return found


# --- partitions -----------------------------------------------------------------------------------


def test_rows_are_where_a_producer_puts_their_keys_in_the_order_of_commits(
    root: str, uri: str
) -> None:
    for batch in (range(20, 30), range(10), range(10, 20)):
        append(uri, batch)
    define(root, uri)
    assert numbers(opened(root)) == placed(range(20, 30), range(10), range(10, 20))


def test_a_key_is_a_string_s_bytes_an_integer_s_text_or_a_binary(root: str, tmp_path: Path) -> None:
    keys = {"s": ["21", "é"], "i": pa.array([21, -7], pa.int32()), "b": [b"21", b"\xff\x00"]}
    texts = {"s": [b"21", "é".encode()], "i": [b"21", b"-7"], "b": keys["b"]}
    append(str(tmp_path / "rows"), pa.table(keys))
    for name, expected in texts.items():
        root_of = f"{root}/{name}"
        define(root_of, str(tmp_path / "rows"), 50, key=name)
        topics = opened(root_of)
        for key in expected:
            (record,) = topics.read("t", (murmur2(key) & 0x7FFFFFFF) % 50, 0, 100, 1)
            assert record.key == key


def test_rows_without_a_key_take_turns_and_stay_there(root: str, uri: str) -> None:
    append(uri, pa.table({"id": pa.nulls(30, pa.string()), "n": pa.array(range(30))}))
    define(root, uri)
    topics = opened(root)
    assert ends(topics) == [(0, 10)] * 3
    assert {record.key for part in everything(topics) for record in part} == {None}
    assert everything(topics) == everything(opened(root))


def test_a_column_may_be_the_partition(root: str, uri: str) -> None:
    append(uri, pa.table({"p": [2, 0, 2], "v": ["a", "b", "c"]}))
    define(root, uri, partition="p", value="v")
    topics = opened(root)
    assert [[r.value for r in part] for part in everything(topics)] == [[b"b"], [], [b"a", b"c"]]
    assert records(topics, 0)[0].key is None


@pytest.mark.parametrize("wrong", [3, -1, None])
def test_a_partition_that_the_topic_does_not_have_ends_it_by_name(
    root: str, uri: str, wrong: int | None
) -> None:
    append(uri, pa.table({"p": pa.array([2, 0], pa.int64())}))
    define(root, uri, partition="p")
    append(uri, pa.table({"p": pa.array([1, wrong], pa.int64())}))
    topics = opened(root)
    assert ends(topics) == [(0, 1), (0, 0), (0, 1)]
    problem = str(topics.problems()["t"])
    assert f"a row has {wrong} in 'p', and topic 't' has partitions 0 to 2" in problem
    assert "version 1 of" in problem


def test_more_partitions_end_that(root: str, uri: str) -> None:
    append(uri, pa.table({"p": [2, 3]}))
    define(root, uri, partition="p")
    topics = opened(root)
    assert "t" in topics.problems()
    alter_topic(root, "t", 4)
    caught_up(topics)
    assert (topics.problems(), ends(topics)) == ({}, [(0, 0), (0, 0), (0, 1), (0, 1)])


def test_a_topic_that_grows_keeps_the_rows_that_were_indexed(root: str, uri: str) -> None:
    append(uri, range(10))
    define(root, uri, 2)
    topics = opened(root)
    alter_topic(root, "t", 5)
    append(uri, range(10, 30))
    caught_up(topics)
    expected = [
        [*old, *new]
        for old, new in zip(
            [*placed(range(10), partitions=2), [], [], []],
            placed(range(10, 30), partitions=5),
            strict=True,
        )
    ]
    assert numbers(topics) == numbers(opened(root)) == expected


# --- what does not move a row ---------------------------------------------------------------------


def test_a_rewrite_without_a_change_moves_no_row(root: str, uri: str) -> None:
    for n in range(5):
        append(uri, [n])
    define(root, uri)
    before = opened(root)
    DeltaTable(uri).optimize.compact()
    append(uri, [9])
    caught_up(before)
    assert numbers(before) == numbers(opened(root)) == placed(range(5), range(9, 10))


def test_what_vacuum_deleted_lies_before_the_log_start(root: str, uri: str) -> None:
    append(uri, range(10))
    append(uri, range(10, 20))
    define(root, uri, 1)
    opened(root)
    DeltaTable(uri).optimize.compact()
    append(uri, range(20, 30))
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    topics = opened(root)
    assert ends(topics) == [(0, 30)]
    with pytest.raises(OffsetOutOfRange, match="no offset 3 in partition 0, only 20 to 30"):
        topics.read("t", 0, 3, 100, 1)
    assert ends(topics) == [(20, 30)]
    assert [record.key for record in records(topics, 0)] == [b"id-%d" % n for n in range(20, 30)]


@pytest.mark.parametrize("away", ["a file", "the folder"])
def test_what_is_away_for_a_moment_is_not_gone(root: str, uri: str, away: str) -> None:
    append(uri, range(20))
    define(root, uri)
    topics = opened(root)
    before = ends(topics)
    (file,) = Path(uri).glob("*.parquet")
    moved = file if away == "a file" else Path(uri)
    elsewhere = Path(root).parent / "elsewhere"
    moved.rename(elsewhere)
    for partition in range(3):
        with pytest.raises((FileNotFoundError, Failure)):
            topics.read("t", partition, 0, 1_000, 10)
    assert ends(topics) == before
    elsewhere.rename(moved)
    assert sum(len(records(topics, number)) for number in range(3)) == 20


def test_a_time_is_found_behind_what_vacuum_deleted(root: str, uri: str) -> None:
    for n in range(2):
        append(uri, [n])
    define(root, uri, 1)
    opened(root)
    DeltaTable(uri).optimize.compact()
    append(uri, [2])
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = opened(root).offset_for_time("t", 0, 0)
    assert found is not None
    assert found[0] == 2


def test_the_latest_time_may_have_been_in_what_vacuum_deleted(root: str, uri: str) -> None:
    def timed(*times: int) -> pa.Table:
        return pa.table({"id": ["k"] * len(times), "at": pa.array(times, pa.int64())})

    append(uri, timed(50, 90))
    append(uri, timed(70, 80, 80, 10))
    define(root, uri, 1, key="id", timestamp="at")
    assert opened(root).offset_of_max_timestamp("t", 0) == (1, 90)
    DeltaTable(uri).delete("at = 50 OR at = 90")
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    topics = opened(root)
    assert topics.offset_of_max_timestamp("t", 0) == (3, 80)
    assert ends(topics) == [(2, 6)]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_file_that_is_committed_twice_is_indexed_once(
    root: str, uri: str, is_indexed: bool
) -> None:
    """delta-rs, whose commit was not acknowledged, commits the same file as the next version."""
    append(uri, range(4))
    define(root, uri, 1)
    if is_indexed:
        assert numbers(opened(root)) == [[f"id-{n}" for n in range(4)]]
    log = Path(uri) / "_delta_log"
    adds = [
        line for line in (log / f"{0:020}.json").read_text().splitlines() if line[:6] == '{"add"'
    ]
    (log / f"{1:020}.json").write_text("\n".join(adds))
    append(uri, range(4, 6))
    assert numbers(opened(root)) == [[f"id-{n}" for n in range(6)]]


def test_a_table_without_its_first_commits_begins_with_the_rows_that_it_has(
    root: str, uri: str
) -> None:
    append(uri, range(4))
    append(uri, range(4, 8))
    DeltaTable(uri).delete("n = 5")
    define(root, uri, 1)
    topics = opened(root)
    assert topics.problems() == {}
    assert sorted(numbers(topics)[0]) == [f"id-{n}" for n in (0, 1, 2, 3, 4, 6, 7)]
    append(uri, range(8, 10))
    assert numbers(caught_up(topics))[0][7:] == ["id-8", "id-9"]
    assert numbers(opened(root)) == numbers(topics)


def test_row_groups_are_indexed_apart(root: str, uri: str) -> None:
    append(uri, range(40))
    (file,) = Path(uri).glob("*.parquet")
    pq.write_table(pq.read_table(file), file, row_group_size=7)
    define(root, uri)
    assert numbers(opened(root)) == placed(range(40))


def test_a_partitioned_table_has_its_columns_back(root: str, uri: str) -> None:
    table = rows(range(6)).append_column("day", pa.array([n % 2 for n in range(6)], pa.int32()))
    append(uri, table, partition_by=["day"])
    define(root, uri, 2, key="day")
    values = {record.value: record.key for part in everything(opened(root)) for record in part}
    assert values == {
        f'{{"id":"id-{n}","n":{n},"day":{n % 2}}}'.encode(): b"%d" % (n % 2) for n in range(6)
    }


@pytest.mark.parametrize("is_snapshot", [False, True], ids=["from its commits", "from its rows"])
@pytest.mark.parametrize("is_remote", [False, True], ids=["in a folder", "through delta-rs"])
def test_partition_values_of_any_text_name_their_files(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch, is_snapshot: bool, is_remote: bool
) -> None:
    if is_remote:
        monkeypatch.setattr(
            table_log, "open_files", lambda uri: PyFileSystem(DeltaStorageHandler(uri))
        )
    texts = ["a b", "ü", "50%", "x=y/z"]
    append(uri, pa.table({"v": texts, "p": texts}), partition_by=["p"])
    if is_snapshot:
        DeltaTable(uri).delete("v = '50%'")
        texts.remove("50%")
    define(root, uri, 1, key="p", value="v")
    topics = opened(root)
    assert topics.problems() == {}
    assert sorted(r.key or b"" for r in records(topics, 0)) == sorted(t.encode() for t in texts)
    assert all(record.key == record.value for record in records(topics, 0))
    DeltaTable(uri).delete()
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(OffsetOutOfRange, match="only 3 to 3" if is_snapshot else "only 4 to 4"):
        opened(root).read("t", 0, 0, 10_000, 100)


# --- indexed once ---------------------------------------------------------------------------------


def commits(root: str) -> int:
    return int(DeltaTable(f"{root}/topic_index").version())


def test_of_two_that_index_at_once_one_writes_and_both_have_it(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(uri, range(10))
    define(root, uri)
    two = [opened(root), opened(root)]
    before = commits(root)
    append(uri, range(10, 30))
    both, to_arrow = Barrier(2), index.to_arrow

    def together(*arguments: Any) -> pa.Table:
        both.wait(20)
        return to_arrow(*arguments)

    monkeypatch.setattr(index, "to_arrow", together)
    threads = [Thread(target=topics.poll) for topics in two]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    monkeypatch.undo()
    assert commits(root) == before + 1
    for topics in (*two, opened(root)):
        assert numbers(caught_up(topics)) == placed(range(10), range(10, 30))


@pytest.mark.full
def test_many_indexers_beside_a_writer_agree(root: str, uri: str) -> None:
    append(uri, range(1))
    define(root, uri)
    several = [TableTopics(root) for _ in range(3)]
    done = [0] * len(several)

    def work(number: int) -> None:
        while sum(end for _, end in ends(caught_up(several[number]))) < 21:
            done[number] += 1

    for topics in several:
        caught_up(topics)
    threads = [Thread(target=work, args=(number,)) for number in range(len(several))]
    for thread in threads:
        thread.start()
    for n in range(1, 21, 2):
        append(uri, range(n, n + 2))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    expected = placed(range(21))
    for topics in (*several, opened(root)):
        assert numbers(topics) == expected


def test_an_indexer_that_read_more_versions_than_the_winner_indexes_none_twice(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner has indexed one version, when the loser comes with that one and the next."""
    append(uri, range(4))
    define(root, uri)
    quick, slow = opened(root), opened(root)
    append(uri, range(4, 8))
    append_entries = Index.append

    def late(self: Index, topic_id: str, entries: Any) -> bool:
        monkeypatch.setattr(Index, "append", append_entries)
        monkeypatch.setattr(indexer, "MOST_FILES", 1)
        quick.poll()
        monkeypatch.undo()
        return append_entries(self, topic_id, entries)

    append(uri, range(8, 12))
    monkeypatch.setattr(Index, "append", late)
    for topics in (slow, quick, opened(root)):
        assert numbers(caught_up(topics)) == placed(range(4), range(4, 8), range(8, 12))


def test_a_commit_is_indexed_in_pieces(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MOST_FILES", 2)
    table = rows(range(20)).append_column("part", pa.array([n % 5 for n in range(20)]))
    append(uri, table, partition_by=["part"])
    define(root, uri)
    first = TableTopics(root)
    assert first.poll()
    assert 0 < sum(end for _, end in ends(first)) < 20, "killed after the first piece"
    assert numbers(opened(root)) == numbers(caught_up(first))
    assert sum(end for _, end in ends(first)) == 20


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
def test_an_append_whose_outcome_is_unknown_is_found_or_repeated(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    append(uri, range(4))
    define(root, uri)
    topics = opened(root)
    append(uri, range(4, 8))
    append_rows = Appender.append

    def unknown(self: Appender, *arguments: Any) -> bool:
        monkeypatch.undo()
        if committed:
            append_rows(self, *arguments)
        raise CommitStateUnknown("the store did not answer")

    monkeypatch.setattr(Appender, "append", unknown)
    topics.poll()
    assert "did not answer" in str(topics.problems()["t"])
    assert numbers(caught_up(topics)) == numbers(opened(root)) == placed(range(4), range(4, 8))
    assert topics.problems() == {}


@pytest.mark.full
def test_the_index_may_be_packed(root: str, uri: str) -> None:
    append(uri, range(4))
    define(root, uri)
    follower = opened(root)
    for n in range(4, 14):
        append(uri, [n])
        opened(root)
    packed = {result.table: result for result in retain(root, UpkeepSettings(), clock_ms())}
    assert packed["topic_index"].files_after == 1
    append(uri, [14])
    assert numbers(caught_up(follower)) == numbers(opened(root)) == placed(range(15))


_INDEX_AND_KILL = """
import os, signal, sys
from group_coordinator.pipeline.topics import TableTopics, indexer
indexer.MOST_FILES = 1
for _ in range(3):
    reader, writer = os.pipe()
    if child := os.fork():
        assert os.read(reader, 1) == b"i"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        continue
    topics = TableTopics(sys.argv[1])
    while topics.poll():
        os.write(writer, b"i")
    os._exit(0)
"""


@pytest.mark.full
def test_killed_indexers_leave_no_row_out_and_none_twice(root: str, uri: str) -> None:
    """Each is killed just after it has indexed something, wherever it is by then."""
    for n in range(0, 60, 2):
        append(uri, range(n, n + 2))
    define(root, uri)
    subprocess.run([sys.executable, "-c", _INDEX_AND_KILL, root], check=True, timeout=120)
    assert sum(end for _, end in ends(after_a_poll(root))) > 0
    assert numbers(opened(root)) == placed(*(range(n, n + 2) for n in range(0, 60, 2)))


def after_a_poll(root: str) -> TableTopics:
    topics = TableTopics(root)
    topics.poll()
    return topics


def test_a_follower_whose_index_log_was_cleaned_up_reads_the_table(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("group_coordinator.pipeline.delta.identity.GONE_CHECK_S", 0)
    append(uri, range(4))
    define(root, uri)
    late, other = opened(root), opened(root)
    for n in range(4, 8):
        append(uri, [n])
        caught_up(other)
    table = DeltaTable(f"{root}/topic_index")
    table.create_checkpoint()
    for version in range(1, table.version() + 1):
        (Path(root) / "topic_index" / "_delta_log" / f"{version:020}.json").unlink()
    assert numbers(caught_up(late)) == numbers(opened(root)) == placed(range(8))


def test_commits_without_rows_are_not_read_again_for_ever(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MOST_IDLE_VERSIONS", 3)
    append(uri, range(4))
    define(root, uri)
    opened(root)
    for n in range(4):
        write_deltalake(
            uri,
            rows([]),
            mode="append",
            commit_properties=properties(n),
        )
    opened(root)
    for version in range(1, 5):
        (Path(uri) / "_delta_log" / f"{version:020}.json").unlink()
    topics = opened(root)
    assert (topics.problems(), sum(end for _, end in ends(topics))) == ({}, 4)


def properties(n: int) -> Any:
    return CommitProperties(app_transactions=[Transaction("app", n)])


# --- an index that contradicts itself -------------------------------------------------------------


def test_entries_that_do_not_follow_are_refused(root: str, uri: str) -> None:
    append(uri, range(10))
    define(root, uri, 1)
    opened(root)
    followed = Index(root)
    followed.poll()
    with pytest.raises(Failure, match=r"at offset 5 of partition 0 .* does not follow offset 10"):
        followed.append(topic_id(root), [entry(root, sequence=2, base=5)])
    assert commits(root) == 1


def test_an_index_that_contradicts_itself_is_its_topic_s_problem_and_can_be_begun_anew(
    root: str, uri: str
) -> None:
    """As one that was written before such entries were refused."""
    append(uri, range(10))
    define(root, uri, 1)
    other = f"{uri}-other"
    append(other, range(5))
    create_table_topic(root, "other", 1, other, key="id")
    opened(root)
    rows = to_arrow(TOPIC_INDEX, [entry(root, sequence=2, base=30)])
    assert Appender(f"{root}/topic_index").append(rows, f"topic-index/{topic_id(root)}", 2)
    append(uri, range(10, 15))
    append(other, range(5, 9))
    topics = opened(root)
    assert "does not follow offset 10: restart it with `topics reindex`" in str(
        topics.problems()["t"]
    )
    # Somebody may have been told of a later end than the one that is known here.
    with pytest.raises(Failure, match="does not follow"):
        topics.log_end("t", 0)
    assert topics.log_end("other", 0) == 9
    topics.reindex("t")
    for each in (caught_up(topics), opened(root)):
        assert each.problems() == {}
        assert ends(each) == [(37, 52)]
        assert len(records(each, 0)) == 15


def topic_id(root: str) -> str:
    return next(each.topic_id for each in read_definitions(root) if each.topic == "t")


def entry(root: str, sequence: int, base: int) -> TopicIndexEntry:
    """An entry of seven rows at an offset of partition 0."""
    return TopicIndexEntry(
        "t",
        topic_id(root),
        sequence,
        version=1,
        partition=0,
        file="again.parquet",
        row_group=0,
        base_offset=base,
        count=7,
        min_timestamp=1,
        max_timestamp=1,
        committed_at=1,
        partitions=1,
    )
