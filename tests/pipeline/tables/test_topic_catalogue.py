"""The catalogue of topics: changed by one at a time, followed by everybody, obeyed by commits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.table import newest_version
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables import topic_catalogue
from group_coordinator.pipeline.tables.store import ensure_table, ensure_tables, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import (
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    TopicWatcher,
    UnknownTopic,
    alter_topic,
    check_name,
    create_topic,
    delete_topic,
)
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from group_coordinator.schemas.rows import TopicChange
from group_coordinator.schemas.tables import TABLES, TOPICS, from_arrow, to_arrow
from tests.pipeline.asking import ask
from tests.pipeline.small import SmallCoordinator
from tests.support.topics import read_counts


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """A root without a catalogue, and without any other table."""
    return str(tmp_path)


# --- changes ------------------------------------------------------------------------------------


def test_the_first_topic_makes_the_catalogue(root: str) -> None:
    assert "topics" not in TABLES
    assert read_counts(root) is None
    create_topic(root, "orders", 6)
    create_topic(root, "clicks", 1)
    assert read_counts(root) == {"clicks": 1, "orders": 6}


def test_partitions_can_only_grow(empty: str) -> None:
    create_topic(empty, "orders", 6)
    alter_topic(empty, "orders", 8)
    with pytest.raises(InvalidPartitions, match=r"already has 8 partition\(s\)"):
        alter_topic(empty, "orders", 8)
    with pytest.raises(InvalidPartitions, match=r"orders currently has 8 .* 7 would not"):
        alter_topic(empty, "orders", 7)
    assert read_counts(empty) == {"orders": 8}


def test_a_deleted_topic_is_unknown_and_can_be_created_anew(empty: str) -> None:
    create_topic(empty, "orders", 6)
    delete_topic(empty, "orders")
    assert read_counts(empty) == {}
    for change in (lambda: alter_topic(empty, "orders", 9), lambda: delete_topic(empty, "orders")):
        with pytest.raises(UnknownTopic, match="no topic 'orders' in the catalogue"):
            change()
    create_topic(empty, "orders", 2)
    assert read_counts(empty) == {"orders": 2}


def test_a_topic_is_created_once(empty: str) -> None:
    create_topic(empty, "orders", 6)
    with pytest.raises(TopicExists, match="'orders' exists"):
        create_topic(empty, "orders", 6)


def test_without_a_catalogue_nothing_can_be_changed(empty: str) -> None:
    for change in (lambda: alter_topic(empty, "orders", 9), lambda: delete_topic(empty, "orders")):
        with pytest.raises(UnknownTopic, match="there is no catalogue of topics under"):
            change()
    assert not (Path(empty) / "topics").exists()


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_a_number_of_partitions_that_no_topic_has(empty: str, partitions: int) -> None:
    with pytest.raises(InvalidPartitions, match=f"cannot have {partitions} partitions"):
        create_topic(empty, "orders", partitions)
    assert read_counts(empty) is None


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249])
def test_a_legal_name(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than"),
        ("ä", "other than ASCII"),
        ("a\n", "other than ASCII"),
    ],
)
def test_an_illegal_name_is_refused_with_the_reason(empty: str, name: str, message: str) -> None:
    with pytest.raises(InvalidTopic) as refused:
        create_topic(empty, name, 1)
    assert message in str(refused.value)


def test_who_comes_second_decides_anew(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(empty, "orders", 1)
    read, both_have_read = topic_catalogue.read_newest, Barrier(2)

    def read_together(root: str) -> dict[str, TopicChange]:
        newest = read(root)
        if "clicks" not in newest:
            both_have_read.wait(timeout=20)
        return newest

    monkeypatch.setattr(topic_catalogue, "read_newest", read_together)
    failures: list[Failure] = []

    def create() -> None:
        try:
            create_topic(empty, "clicks", 3)
        except Failure as failure:
            failures.append(failure)

    threads = [Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(failure) for failure in failures] == [TopicExists]
    assert read_counts(empty) == {"clicks": 3, "orders": 1}


def test_a_clock_that_is_put_back_does_not_bring_an_old_number_back(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now, partitions in ((1000, 1), (500, 2), (1000, 3)):
        monkeypatch.setattr(topic_catalogue, "clock_ms", lambda now=now: now)
        change = create_topic if partitions == 1 else alter_topic
        change(empty, "orders", partitions)
    assert read_counts(empty) == {"orders": 3}


# --- following ----------------------------------------------------------------------------------


def test_a_watcher_tells_of_each_change_once(root: str) -> None:
    watcher = TopicWatcher(root)
    assert (watcher.poll(), watcher.counts) == (None, None)
    create_topic(root, "orders", 6)
    assert watcher.poll() == {"orders": 6}
    assert (watcher.poll(), watcher.counts) == (None, {"orders": 6})
    alter_topic(root, "orders", 8)
    create_topic(root, "clicks", 1)
    assert watcher.poll() == {"clicks": 1, "orders": 8}
    delete_topic(root, "orders")
    delete_topic(root, "clicks")
    assert (watcher.poll(), watcher.counts) == ({}, {})


def test_a_watcher_begins_with_what_there_is(root: str) -> None:
    create_topic(root, "orders", 6)
    alter_topic(root, "orders", 8)
    assert TopicWatcher(root).poll() == {"orders": 8}


def test_a_catalogue_whose_first_commit_was_cleaned_up_is_one(root: str) -> None:
    create_topic(root, "orders", 6)
    handle = ensure_table(root, TOPICS)
    handle.create_checkpoint()
    (Path(root) / "topics/_delta_log" / f"{0:020}.json").unlink()
    assert TopicWatcher(root).poll() == {"orders": 6}


def test_a_watcher_knows_when_topics_were_deleted_last(root: str) -> None:
    for name in ("orders", "clicks"):
        create_topic(root, name, 6)
    before = TopicWatcher(root)
    before.poll()
    delete_topic(root, "orders")
    create_topic(root, "orders", 2)
    delete_topic(root, "clicks")
    before.poll()
    after = TopicWatcher(root)
    after.poll()
    assert before.catalogue == after.catalogue
    assert before.catalogue is not None
    assert before.catalogue.partitions == {"orders": 2}
    assert list(before.catalogue.deleted) == ["orders", "clicks"]
    assert before.catalogue.deleted_at == before.catalogue.deleted["clicks"]


def test_a_watcher_knows_the_last_deletions_only(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_catalogue, "MOST_DELETED", 2)
    for name in ("a", "b", "c"):
        create_topic(root, name, 1)
        delete_topic(root, name)
    watcher = TopicWatcher(root)
    watcher.poll()
    assert watcher.catalogue is not None
    assert list(watcher.catalogue.deleted) == ["b", "c"]


def test_a_watcher_that_slept_past_the_log_s_retention_reads_the_catalogue_anew(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("group_coordinator.pipeline.delta.identity.GONE_CHECK_S", 0)
    create_topic(empty, "orders", 2)
    watcher = TopicWatcher(empty)
    assert watcher.poll() == {"orders": 2}
    alter_topic(empty, "orders", 3)
    create_topic(empty, "clicks", 1)
    DeltaTable(f"{empty}/topics").create_checkpoint()
    for commit in Path(empty, "topics", "_delta_log").glob("*.json"):
        commit.unlink()
    assert watcher.poll() == {"clicks": 1, "orders": 3}
    assert watcher.poll() is None
    alter_topic(empty, "orders", 4)
    assert watcher.poll() == {"clicks": 1, "orders": 4}


@pytest.mark.parametrize("others", [0, 3])
def test_a_catalogue_that_was_made_anew_is_read_anew(
    empty: str, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Without rows it is unknown: a topic that nobody deleted would be gone."""
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    create_topic(empty, "orders", 2)
    watcher = TopicWatcher(empty)
    watcher.poll()
    shutil.rmtree(Path(empty, "topics"))
    ensure_table(empty, TOPICS)
    for number in range(others):
        create_topic(empty, f"t{number}", 1)
    if others:
        # The rows of the other table are read before a look finds nothing.
        watcher.poll()
    with pytest.raises(TableReplacedError, match="topics was replaced"):
        watcher.poll()
    if not others:
        with pytest.raises(Failure, match="has no rows yet"):
            watcher.poll()
        assert watcher.counts == {"orders": 2}
        create_topic(empty, "t0", 1)
    now = {f"t{number}": 1 for number in range(max(1, others))}
    assert watcher.poll() == now
    assert watcher.created.keys() == now.keys()


def test_the_catalogue_is_what_a_restore_has_left(empty: str) -> None:
    create_topic(empty, "orders", 2)
    version = newest_version(table_uri(empty, TOPICS))
    create_topic(empty, "clicks", 1)
    watcher = TopicWatcher(empty)
    assert watcher.poll() == {"orders": 2, "clicks": 1}
    DeltaTable(table_uri(empty, TOPICS)).restore(version)
    assert watcher.poll() == {"orders": 2}
    assert watcher.poll() is None
    create_topic(empty, "clicks", 3)
    assert watcher.poll() == {"orders": 2, "clicks": 3}


# --- what a commit is told ----------------------------------------------------------------------


@pytest.fixture
def answered(root: str) -> Iterator[str]:
    coordinator = SmallCoordinator(root)
    yield root
    coordinator.stop()


def commit_codes(root: str, *places: tuple[str, int]) -> list[int]:
    wanted = tuple(
        OffsetCommitTopic(topic, (OffsetCommitPartition(partition, 5),))
        for topic, partition in places
    )
    commit = OffsetCommitRequest(topics=wanted)
    answer = ask(root, RequestEvent(f"{places}", "g", "offset_commit", offset_commit=commit))
    assert answer.offset_commit is not None
    return [p.error_code for topic in answer.offset_commit.topics for p in topic.partitions]


def test_a_commit_to_an_unknown_topic_or_partition_gets_3(answered: str) -> None:
    assert commit_codes(answered, ("any", 7)) == [0]
    create_topic(answered, "orders", 2)
    assert commit_codes(answered, ("orders", 1), ("orders", 2), ("other", 0)) == [0, 3, 3]
    alter_topic(answered, "orders", 3)
    assert commit_codes(answered, ("orders", 2)) == [0]
    committed = 'SELECT topic, "partition" FROM committed_offsets ORDER BY ALL'
    assert Catalog(answered).query(committed).rows == [("any", 7), ("orders", 1), ("orders", 2)]


# --- the command --------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(make_app(), ["topics", *arguments])


def test_the_command(root: str) -> None:
    listed = command("list", "--root", root, "--format", "json")
    assert "there is no catalogue of topics: every topic name is accepted" in listed.output
    done = command("create", "orders", "--root", root, "--partitions", "6")
    assert done.output.startswith("topic 'orders' created with 6 partitions; its records are rows")
    command("create", "clicks", "--root", root, "--partitions", "1")
    done = command("alter", "orders", "--root", root, "--partitions", "8")
    assert done.output == "topic 'orders' has 8 partitions\n"
    assert command("delete", "clicks", "--root", root).output == "topic 'clicks' deleted\n"
    (line,) = command("list", "--root", root, "--format", "json").output.splitlines()
    row = json.loads(line)
    assert (row["topic"], row["partitions"], "changed_at" in row) == ("orders", 8, True)
    refused = command("alter", "orders", "--root", root, "--partitions", "8")
    assert isinstance(refused.exception, InvalidPartitions)


def test_sql_shows_the_topics_there_are_and_every_change(empty: str) -> None:
    create_topic(empty, "orders", 6)
    create_topic(empty, "clicks", 1)
    delete_topic(empty, "clicks")
    catalog = Catalog(empty)
    assert catalog.query("SELECT topic, partitions FROM topics").rows == [("orders", 6)]
    changes = "SELECT topic, partitions FROM topic_changes ORDER BY changed_at"
    assert catalog.query(changes).rows == [("orders", 6), ("clicks", 1), ("clicks", None)]


def test_without_a_catalogue_sql_has_no_topics(root: str) -> None:
    assert Catalog(root).query("SELECT * FROM topics").rows == []


def test_rows_come_back_as_they_went_in() -> None:
    changes = [TopicChange("orders", 6, 1_700_000_000_123), TopicChange("orders", None, 5)]
    assert from_arrow(TopicChange, to_arrow(TOPICS, changes)) == changes


def test_the_other_tables_do_not_make_a_catalogue(empty: str) -> None:
    ensure_tables(empty)
    assert not topic_catalogue.has_catalogue(empty)
