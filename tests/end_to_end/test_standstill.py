"""A machine is suspended and resumes, like a sleeping laptop or a paused virtual machine.

Its coordinators continue: a member that wrote in time does not expire, neither of two coordinators
declares the other one dead, and Spark keeps its executor.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.node.process import descendants
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.partitions import await_move, move
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.rows import rows
from tests.support.fleet import Fleet, Member
from tests.support.process import KillableCoordinator
from tests.support.rebalance import form
from tests.waiting import wait_until

PARTITIONS = 2
SESSION_S = 10.0
STANDSTILL_S = 45.0
WAIT_S = 60.0
# Spark would remove its executor after 12 s, and checks every second.
CONFIG = f"""
[group]
group.initial.rebalance.delay.ms = 0
offsets.topic.num.partitions = {PARTITIONS}
[spark]
spark.driver.memory = "1g"
spark.network.timeout = "12s"
spark.network.timeoutInterval = "1s"
"""

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


def test_who_wrote_in_time_is_still_a_member_and_moves_and_timers_go_on(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    root = str(tmp_path / "root")
    ensure_tables(root)
    nodes = [
        KillableCoordinator(root, config, tmp_path / f"log-{n}", node_id=n) for n in range(1, 3)
    ]
    try:
        for node in nodes:
            node.await_ready()
        decisions = DecisionLog(root)
        wait_until(
            "each node owns a partition",
            lambda: {len(decisions.read().owned_by(n)) for n in (1, 2)} == {1},
            WAIT_S,
        )
        fleet = Fleet(root, 4, 2, session_ms=int(1000 * SESSION_S))
        form(fleet)
        assert {partition_for(m.group_id, PARTITIONS) for m in fleet.members} == {0, 1}
        everybody, silent = fleet.members, fleet.groups[0][1]
        epochs = {number: node.epoch for number, node in decisions.read().nodes.items()}
        asked = ask(fleet, everybody)
        processes = [each for node in nodes for each in (node.pid, *below(node.pid))]
        stand_still(processes, lambda: asked.extend(ask(fleet, everybody)))
        answers = await_answers(fleet, asked)
        assert set(answers.values()) == {ErrorCode.NONE}
        for partition in range(PARTITIONS):
            to = 3 - (decisions.read().partitions[partition].owner or 0)
            move(decisions, partition, to)
            await_move(decisions, partition, to, WAIT_S)
            answers = await_answers(fleet, ask(fleet, everybody))
            assert set(answers.values()) == {ErrorCode.NONE}
        others = [member for member in everybody if member.group_id != silent.group_id]
        wait_until(
            "the silent one expires",
            lambda: has_expired(root, silent),
            WAIT_S,
            lambda: ask(fleet, others),
            0.2,
        )
        now = decisions.read().nodes
        assert {number: node.epoch for number, node in now.items()} == epochs, "nobody started anew"
    finally:
        for node in nodes:
            node.kill()
    for number in (1, 2):
        said = (Path(root) / "_logs" / f"node-{number}.log").read_text()
        assert not re.search(r"^\S+ \S+ (ERROR|.*HeartbeatReceiver)", said, re.MULTILINE)


def below(pid: int) -> list[int]:
    return [each.pid for each in descendants(pid)]


def stand_still(processes: Sequence[int], meanwhile: Callable[[], object]) -> None:
    """Stop the processes while members continue, then resume them."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        until_s = time.monotonic() + STANDSTILL_S
        while time.monotonic() < until_s:
            meanwhile()
            time.sleep(3)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def ask(fleet: Fleet, members: Sequence[Member]) -> list[str]:
    events = [member.heartbeat() for member in members]
    fleet.requests.append(events)
    return [event.request_id for event in events]


def await_answers(fleet: Fleet, asked: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}

    def listen() -> bool:
        for row in fleet.answers():
            if row["request_id"] in asked:
                assert row["request_id"] not in found, "answered once"
                found[row["request_id"]] = row["error_code"]
        return len(found) == len(asked)

    wait_until(lambda: f"{len(asked) - len(found)} are unanswered", listen, WAIT_S)
    return found


def has_expired(root: str, member: Member) -> bool:
    events = rows(root, "group_events")
    return any(e["event"] == "member_expired" and member.member_id in str(e) for e in events)
