"""The documented spark-submit on a real cluster: Spark's standalone master and two workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.client import GroupMember
from group_coordinator.pipeline.node.packaging import Packaged, write_package
from group_coordinator.pipeline.session.spark_settings import packages
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.end_to_end.standalone import Standalone
from tests.end_to_end.submitting import LIMIT_S, is_committed, shipped
from tests.ends import check_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Packaged:
    return write_package(tmp_path_factory.mktemp("package"))


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    found = Standalone(tmp_path)
    try:
        found.begin()
        yield found
    finally:
        found.stop()


def arguments(package: Packaged, root: Path, *options: str) -> list[str]:
    return ["--packages", packages(), *options, str(package.job), "--root", str(root)]


def test_a_submit_without_the_archive_says_in_one_line_what_executors_lack(
    standalone: Standalone, package: Packaged, tmp_path: Path
) -> None:
    child = standalone.submit("submit", *arguments(package, tmp_path / "root"))
    check_end(child.wait(180), standalone.text("submit")[-2_000:], 1)
    lines = [line for line in standalone.text("submit").splitlines() if "coordinator:" in line]
    assert len(lines) == 1
    assert "an executor's Python 3." in lines[0]
    assert "has no group_coordinator, deltalake, duckdb, msgspec" in lines[0]
    assert "submit with --archives" in lines[0]
    assert "Traceback" not in standalone.text("submit")


def test_requests_are_answered_while_executors_and_workers_die_and_after_a_restart(
    standalone: Standalone, package: Packaged, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    submitted = arguments(package, root, *shipped(package))
    first = standalone.submit("first", *submitted)
    standalone.wait_ready("first")
    create_topic(str(root), "orders", 3)

    with GroupMember(str(root), "group", ["orders"], session_timeout_ms=60_000) as member:
        wait_until("an assignment", lambda: member.poll_positions(500), LIMIT_S)
        member_id = member.member_id
        assert is_committed(member, 1)
        (executor,) = standalone.executors("worker-1")
        os.kill(executor, signal.SIGKILL)
        assert is_committed(member, 2)
        standalone.kill_worker("worker-2")
        assert is_committed(member, 3)

        os.kill(first.pid, signal.SIGTERM)
        # Java's status after SIGTERM, also after an orderly end.
        check_end(first.wait(120), standalone.text("first")[-2_000:], 143)
        assert "stopped; other nodes take over without waiting" in standalone.text("first")
        standalone.submit("second", *submitted)
        standalone.wait_ready("second")
        assert is_committed(member, 4)
        # From the streaming checkpoint: the group is unchanged, and no member joined again.
        assert member.member_id == member_id
        assert member.generation == 1
