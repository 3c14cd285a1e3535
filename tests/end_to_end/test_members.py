"""Members in separate processes, with a coordinator on Spark that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.end_to_end.member_process import MemberProcess
from tests.ends import check_end
from tests.support.process import KillableCoordinator

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 6
SESSION_MS = 10_000
SETTINGS = {
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 1_000,
    "auto_commit_interval_ms": 500,
}
CONFIG = """
[group]
group.initial.rebalance.delay.ms = 0
[spark]
spark.driver.memory = "1g"
"""

Start = Callable[..., MemberProcess]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("members")
    root = str(folder / "root")
    ensure_tables(root)
    create_topic(root, "t", PARTITIONS)
    config = folder / "c.toml"
    config.write_text(CONFIG)
    coordinator = KillableCoordinator(root, config, folder / "coordinator.log")
    try:
        coordinator.await_ready()
        yield root
        check_end(coordinator.stop(), coordinator.log_path)
    finally:
        coordinator.kill()


@pytest.fixture
def start(root: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts members of the test's group; they are killed at the end."""
    started: list[MemberProcess] = []

    def start_one(**settings: Any) -> MemberProcess:
        log = tmp_path / f"{len(started)}.log"
        one = MemberProcess(root, request.node.name, log, **{**SETTINGS, **settings})
        started.append(one)
        return one

    yield start_one
    for one in started:
        one.kill()


def test_the_partitions_of_a_killed_member_go_on_where_it_committed(start: Start) -> None:
    first, second = start(), start()
    first.until_owns(3)
    second.until_owns(3)
    second.ask("positions", "positions")
    second.do("polls", False)
    committed = second.ask("commit", "committed")["positions"]
    since = len(first.told)
    second.kill()
    first.until_owns(PARTITIONS, since)
    went_on = first.ask("positions", "positions")["positions"]
    assert len(committed) == 3
    assert all(went_on[key] >= offset for key, offset in committed.items())
    first.close()


def test_a_static_member_restarts_and_nobody_notices(start: Start) -> None:
    first = start(group_instance_id="first", session_timeout_ms=600_000)
    second = start(group_instance_id="second", session_timeout_ms=600_000)
    first.until_owns(3)
    before = second.until_owns(3)
    since = len(first.told)
    second.kill()
    again = start(group_instance_id="second", session_timeout_ms=600_000)
    after = again.until_owns(3)
    assert (after["owned"], after["generation"]) == (before["owned"], before["generation"])
    assert after["member_id"] != before["member_id"]
    first.ask("commit", "committed")
    assert [line["what"] for line in first.told[since:]] == ["committed"]


def test_who_holds_the_interpreter_is_expired_after_the_session_and_finds_out(
    start: Start,
) -> None:
    first, second = start(), start()
    first.until_owns(3)
    second.until_owns(3)
    since, seen = len(first.told), len(second.told)
    second.ask("hold", "held", SESSION_MS // 2 // 1000)
    second.ask("commit", "committed")
    told = [line["what"] for line in second.told[seen:]]
    assert told == ["holding", "held", "committed"]
    assert len(first.told) == since, "held for less than the session: nothing has happened"
    second.do("hold", SESSION_MS * 3 // 2000)
    first.until_owns(PARTITIONS, since)
    lost = second.until(lambda line: line["what"] == "lost", seen)
    assert len(lost["partitions"]) == 3
    second.until_owns(3, seen)
    for one in (first, second):
        one.close()
