"""The documented spark-submit on a real YARN, in client mode and in cluster mode."""

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
from tests.end_to_end.submitting import LIMIT_S, is_committed, shipped
from tests.end_to_end.yarn import Yarn
from tests.ends import check_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2400)]

STOPPED = "stopped; other nodes take over without waiting"
# A batch waits for executors that YARN must start, on a busy machine. Its query does not hang.
SETTINGS = "[coordinator]\nprogress.timeout.ms = 600000\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Packaged:
    return write_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    found = Yarn(tmp_path_factory.mktemp("yarn"))
    try:
        found.begin()
        yield found
    finally:
        found.stop()


def in_container(yarn: Yarn) -> list[str]:
    """Return the options that give a driver in a container its Python, and the packages."""
    return [
        *("--deploy-mode", "cluster"),
        *("--conf", f"spark.pyspark.driver.python={yarn.python}"),
        *("--conf", "spark.yarn.appMasterEnv.PYTHONPATH=group-coordinator"),
    ]


def assigned(member: GroupMember) -> str:
    wait_until("an assignment", lambda: member.poll_positions(500), LIMIT_S)
    return member.member_id


def test_with_the_driver_beside_its_user_executors_are_killed_and_sigterm_stops_in_order(
    yarn: Yarn, package: Packaged, tmp_path: Path
) -> None:
    root, settings = tmp_path / "root", tmp_path / "my.toml"
    settings.write_text(SETTINGS)
    child = yarn.submit(
        "client",
        *("--deploy-mode", "client", "--packages", packages(), *shipped(package)),
        *(str(package.job), "--root", str(root), "--config", str(settings)),
    )
    yarn.wait_ready("client")
    create_topic(str(root), "orders", 3)
    # On a cluster, Hadoop resolves a path without a scheme to its HDFS; to a user it is a folder.
    assert list(root.glob("_checkpoints/*/*/stream/offsets"))

    with GroupMember(str(root), "group", ["orders"], session_timeout_ms=600_000) as member:
        assigned(member)
        assert is_committed(member, 1)
        executors = [each for each in yarn.containers() if each.is_executor]
        for each in executors:
            os.kill(each.pid, signal.SIGKILL)
        assert is_committed(member, 2)
        assert {each.name for each in executors}.isdisjoint(e.name for e in yarn.containers())

    os.kill(child.pid, signal.SIGTERM)
    # Java's status after SIGTERM, also after an orderly end.
    check_end(child.wait(120), yarn.text("client")[-2_000:], 143)
    assert STOPPED in yarn.text("client")


def test_with_the_driver_in_a_container_its_death_is_survived_and_a_kill_stops_in_order(
    yarn: Yarn, package: Packaged, tmp_path: Path
) -> None:
    root, settings = tmp_path / "root", tmp_path / "my.toml"
    settings.write_text(f'{SETTINGS}checkpoint.location = "{yarn.hdfs}/streams"\n')
    yarn.submit(
        "cluster",
        *(*in_container(yarn), "--packages", packages(), *shipped(package)),
        *("--files", str(settings)),
        *(str(package.job), "--root", str(root), "--config", "my.toml"),
    )
    application = yarn.application("cluster")
    first, second = (
        f"{application.replace('application', 'container')}_0{attempt}_000001" for attempt in (1, 2)
    )
    yarn.wait_ready("cluster", first)
    create_topic(str(root), "orders", 3)

    with GroupMember(str(root), "group", ["orders"], session_timeout_ms=600_000) as member:
        member_id = assigned(member)
        assert is_committed(member, 1)
        # The second attempt starts from the streaming checkpoint, which has the group.
        (driver,) = [each for each in yarn.containers() if each.name == first]
        os.kill(driver.pid, signal.SIGKILL)
        yarn.wait_ready("cluster", second)
        assert is_committed(member, 2)
        assert "took over from the tables" in yarn.said(first)
        assert "took over from the tables" not in yarn.said(second)
        assert (member.member_id, member.generation) == (member_id, 1)

    yarn.kill_application(application)
    wait_until(
        "the driver ends",
        lambda: second not in [each.name for each in yarn.containers()],
        LIMIT_S,
    )
    assert STOPPED in yarn.said(second)
