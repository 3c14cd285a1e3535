"""Which tables can be topics, and what the root remembers of one."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
from group_coordinator.pipeline.tables import topic_catalogue
from group_coordinator.pipeline.tables.store import TableMissing, ensure_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import (
    TopicExists,
    alter_topic,
    create_topic,
    delete_topic,
    read_newest,
)
from group_coordinator.pipeline.topics import (
    InvalidTable,
    TableTopics,
    create_log_topic,
    create_table_topic,
    definition,
)
from group_coordinator.schemas.rows import TopicTable
from group_coordinator.schemas.tables import TOPIC_TABLES, TOPICS, Table, to_arrow
from tests.pipeline.tables.away import away_once
from tests.pipeline.topics.tables import append, define, ends, opened


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of ten rows."""
    table = str(tmp_path / "rows")
    append(table, range(10))
    return table


def run(*arguments: str) -> Any:
    return CliRunner().invoke(make_app(), ["topics", *arguments])


def test_the_command_creates_a_topic_of_a_table_and_lists_it(root: str, uri: str) -> None:
    made = run("create", "t", "--root", root, "--partitions", "3", "--table", uri, "--key", "id")
    assert made.exit_code == 0, made.output
    assert "topic 't' has 10 records of its table" in made.output
    create_topic(root, "plain", 2)
    alter_topic(root, "t", 4)
    listed = run("list", "--root", root, "--format", "json")
    found = {row["topic"]: row for row in map(json.loads, listed.stdout.splitlines())}
    assert (found["t"]["partitions"], found["t"]["table"]) == (4, uri)
    assert (found["t"]["key_column"], found["t"]["value_column"]) == ("id", None)
    assert (found["plain"]["partitions"], found["plain"]["table"]) == (2, None)


def test_options_of_a_table_need_one(root: str) -> None:
    made = run("create", "t", "--root", root, "--partitions", "3", "--key", "id")
    assert (made.exit_code, "need --table" in made.output) == (2, True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "needs either a key or a partition column"),
        ({"key": "id", "partition": "n"}, "needs either a key or a partition column"),
        ({"key": "key"}, "--key: .* has no column 'key', only id, n"),
        ({"partition": "id"}, "--partition: column 'id' of .* is string, and must be an integer"),
        ({"key": "id", "value": "v"}, "--value: .* has no column 'v'"),
        ({"key": "id", "timestamp": "id"}, "--timestamp: .* must be a timestamp"),
    ],
)
def test_columns_that_do_not_do_are_named(
    root: str, uri: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidTable, match=message):
        create_table_topic(root, "t", 3, uri, **columns)
    assert opened(root).topics() == {}


def test_a_key_of_a_type_without_one_text_is_refused(root: str, tmp_path: Path) -> None:
    table = str(tmp_path / "floats")
    append(table, pa.table({"x": [1.5]}))
    with pytest.raises(InvalidTable, match=r"'x' .* is double, and must be a string, binary or an"):
        create_table_topic(root, "t", 3, table, key="x")


def test_there_must_be_a_table(root: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidTable, match="there is no Delta table at"):
        create_table_topic(root, "t", 3, str(tmp_path / "none"), key="id")


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (
            '{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],'
            '"writerFeatures":["deletionVectors"]}',
            "deletionVectors",
        ),
        ('{"minReaderVersion":2,"minWriterVersion":5}', "columnMapping"),
    ],
)
def test_a_table_whose_files_do_not_hold_its_rows_is_refused_by_the_feature_s_name(
    root: str, uri: str, protocol: str, named: str
) -> None:
    (Path(uri) / "_delta_log" / f"{1:020}.json").write_text(f'{{"protocol":{protocol}}}')
    with pytest.raises(InvalidTable, match=f"is a table with {named}, which a topic cannot read"):
        define(root, uri)


def test_times_without_a_zone_make_no_other_table(root: str, tmp_path: Path) -> None:
    """They are a feature of Delta's readers of version 3."""
    table = str(tmp_path / "times")
    append(table, pa.table({"id": ["a"], "at": pa.array([0], pa.timestamp("us"))}))
    assert DeltaTable(table).protocol().min_reader_version == 3
    define(root, table, 1)
    (record,) = opened(root).read("t", 0, 0, 1_000, 1)
    assert record.value == b'{"id":"a","at":"1970-01-01T00:00:00.000000"}'


# --- definitions that hold, and those that do not -------------------------------------------------


def test_a_plain_topic_does_not_inherit_what_a_killed_creator_left(root: str, uri: str) -> None:
    """The creator was killed between the definition and the topic's row."""
    ensure_table(root, TOPICS)
    left = TopicTable("t", "an-id", uri, "a-table", "id", None, None, None, None, at=1_000)
    ensure_table(root, TOPIC_TABLES)
    Appender(table_uri(root, TOPIC_TABLES)).append(to_arrow(TOPIC_TABLES, [left]))
    create_topic(root, "t", 3)
    assert opened(root).topics() == {}
    delete_topic(root, "t")
    define(root, uri)
    assert sum(end for _, end in ends(opened(root))) == 10


def test_a_topic_keeps_its_table_while_the_definitions_are_away(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them it would be a topic without records, until the catalogue changes."""
    define(root, uri)
    topics = TableTopics(root)
    read = definition.read_table

    def is_away(root: str, table: Table) -> pa.Table:
        monkeypatch.setattr(definition, "read_table", read)
        raise TableNotFoundError(f"no log files: {root}/{table.name}")

    monkeypatch.setattr(definition, "read_table", is_away)
    with pytest.raises(TableNotFoundError):
        topics.poll()
    assert topics.catalogue() == {}
    topics.catch_up()
    assert sum(end for _, end in ends(topics)) == 10


def test_definitions_that_are_gone_are_not_none(root: str, uri: str) -> None:
    """Else the topic would have no records, and consumers begin anew and commit that."""
    define(root, uri)
    definitions = Path(table_uri(root, TOPIC_TABLES))
    gone = definitions.rename(f"{root}/gone")
    topics = TableTopics(root)
    with pytest.raises(TableNotFoundError, match=TOPIC_TABLES.name):
        topics.poll()
    assert topics.catalogue() == {}
    with pytest.raises(TableMissing, match=rf"{definitions} is missing"):
        create_log_topic(root, "other", 1)
    assert not definitions.exists()
    gone.rename(definitions)
    topics.catch_up()
    assert sum(end for _, end in ends(topics)) == 10


@pytest.mark.parametrize("module", [definition, topic_catalogue])
def test_a_folder_that_is_away_for_one_look_is_not_gone(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    define(root, uri)
    monkeypatch.setattr(module, "has_table", away_once())
    create_log_topic(root, "other", 1)
    assert read_newest(root).keys() == {"t", "other"}
    assert {each.topic for each in definition.read_definitions(root)} == {"t", "other"}


def test_a_topic_and_its_table_go_at_once(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway is asked in between, by other threads: nobody is told that it has no table."""
    define(root, uri)
    logs = TopicLogs(root)
    delete_topic(root, "t")
    poll = TableTopics.poll

    def asked(topics: TableTopics) -> bool:
        found = poll(topics)
        assert logs.tables.find("t") is None
        assert "t" not in logs.tables.catalogue()
        return found

    monkeypatch.setattr(TableTopics, "poll", asked)
    before = logs.tables.find("t")
    assert before is not None and before[1] is not None
    assert logs.poll() == ["t"]


def test_a_topic_is_created_once(root: str, uri: str, tmp_path: Path) -> None:
    define(root, uri)
    other = str(tmp_path / "other")
    append(other, range(2))
    with pytest.raises(TopicExists):
        define(root, other)
    assert sum(end for _, end in ends(opened(root))) == 10


def test_a_topic_that_is_created_anew_begins_anew(root: str, uri: str) -> None:
    topics = opened(root)
    define(root, uri)
    topics.catch_up()
    delete_topic(root, "t")
    assert topics.poll()
    assert topics.topics() == {}
    define(root, uri, 1)
    topics.catch_up()
    assert ends(topics) == ends(opened(root)) == [(0, 10)]


def test_an_alias_of_the_table_s_folder_is_resolved(root: str, uri: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(Path(uri).parent)
    define(root, "rows")
    monkeypatch.chdir("/")
    assert sum(end for _, end in ends(opened(root))) == 10


def test_of_two_who_make_a_topic_at_once_one_has_defined_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else gateways would append to either one's table, as they read the definitions."""
    create_topic(root, "newest", 1)
    # Both count from the newest change, as with clocks that are behind.
    monkeypatch.setattr(topic_catalogue, "clock_ms", lambda: 0)
    made: list[TopicTable] = []

    def meanwhile() -> None:
        if not made:
            made.append(create_log_topic(root, "t", 1))

    with pytest.raises(TopicExists):
        create_log_topic(root, "t", 1, check=meanwhile)
    first, second = sorted(each.at for each in definition.read_definitions(root))
    assert first < second
    in_force, _ = definition.log_topics(root)
    assert [each.topic_id for each in in_force] == [made[0].topic_id]


def test_a_topic_whose_maker_was_killed_is_made_with_another_definition(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(root, "newest", 1)
    monkeypatch.setattr(topic_catalogue, "clock_ms", lambda: 0)
    with monkeypatch.context() as patch:
        patch.setattr(topic_catalogue, "to_arrow", killed)
        with pytest.raises(InterruptedError):
            create_log_topic(root, "t", 1)
    made = create_log_topic(root, "t", 1)
    in_force, (lost,) = definition.log_topics(root)
    assert [each.topic_id for each in in_force] == [made.topic_id]
    assert lost[0].at < made.at


def killed(*_: object) -> Any:
    raise InterruptedError
