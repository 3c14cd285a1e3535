"""`topics describe`: a topic's partitions, where they begin and end, and what it is besides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import create_log_topic
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define, opened

APP = make_app("topics")


def describe(root: str, name: str, *more: str) -> Result:
    done = CliRunner().invoke(APP, ["topics", "describe", name, "--root", root, *more])
    if done.exception is not None:
        raise done.exception
    return done


def ends(root: str, name: str) -> list[tuple[int, int | None, int | None]]:
    """Each partition, where it begins and where it ends."""
    rows = map(json.loads, describe(root, name, "--format", "json").stdout.splitlines())
    return [(r["partition"], r["log_start_offset"], r["log_end_offset"]) for r in rows]


def test_a_root_in_the_home_folder(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells pass `--root=~/groups` as it is."""
    monkeypatch.setenv("HOME", str(Path(root).parent))
    name = Path(root).name
    made = [make(root, 2).topic, "--partitions", "3", f"--root=~/{name}"]
    done = CliRunner().invoke(APP, ["topics", "alter", *made])
    assert done.exit_code == 0, done.output
    assert len(ends(f"~/{name}", made[0])) == 3


def test_a_topic_with_a_table_of_its_own(root: str) -> None:
    appender(topic := make(root, 2)).append([batch(1, "a", "b", "c")])
    assert ends(root, topic.topic) == [(0, 0, 0), (1, 0, 3)]
    told = describe(root, topic.topic)
    assert "LOG-END-OFFSET" in told.stdout.splitlines()[0]
    assert told.stdout.splitlines()[2].split()[:4] == [topic.topic, "1", "0", "3"]


def test_its_configs_are_told(root: str) -> None:
    create_log_topic(root, "orders", 1, {"retention.ms": "3600000"})
    said = describe(root, "orders").stderr
    assert "its configs: " in said
    assert '"retention.ms":"3600000"' in said.replace(" ", "")


def test_a_topic_that_is_a_user_s_table(root: str, tmp_path) -> None:
    orders = str(tmp_path / "orders")
    append(orders, range(50))
    define(root, orders, 2)
    opened(root)
    assert sum(end or 0 for _, _, end in ends(root, "t")) == 50
    said = describe(root, "t").stderr
    assert f"its records are the rows of {orders}" in said
    assert "its key is the column" in said


def test_the_ends_of_a_topic_without_a_table_are_not_known(root: str) -> None:
    create_topic(root, "orders", 2)
    assert ends(root, "orders") == [(0, None, None), (1, None, None)]
    assert "it has no table, so its end offsets are unknown" in describe(root, "orders").stderr


def test_a_topic_that_there_is_not(root: str) -> None:
    create_topic(root, "orders", 2)
    with pytest.raises(Failure, match=f"there is no topic 'order' in the catalogue of {root}"):
        describe(root, "order")
