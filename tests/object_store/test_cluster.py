"""A cluster with tables and checkpoints on S3: the documented spark-submit with `s3a://`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from group_coordinator.pipeline.client import GroupMember
from group_coordinator.pipeline.node.packaging import write_package
from group_coordinator.pipeline.session.checkpoint_location import store_packages
from group_coordinator.pipeline.session.spark_settings import packages
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.end_to_end.standalone import Standalone
from tests.end_to_end.submitting import LIMIT_S, is_committed, shipped
from tests.ends import check_end
from tests.object_store.proxy import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_a_cluster_keeps_its_streaming_checkpoint_beside_the_tables_on_s3(
    root: str, proxy: Proxy, tmp_path: Path
) -> None:
    package = write_package(tmp_path / "package")
    standalone = Standalone(tmp_path)
    config = tmp_path / "coordinator.toml"
    # On a busy machine executors may take minutes to their first batch.
    config.write_text("[coordinator]\nprogress.timeout.ms = 600000\n")
    jars = ",".join([packages(), *store_packages(root)])
    submitted = [
        *("--packages", jars),
        *shipped(package),
        *(str(package.job), "--root", root, "--config", str(config)),
    ]
    try:
        standalone.begin()
        first = standalone.submit("first", *submitted)
        standalone.wait_ready("first")
        assert any("/_checkpoints/" in asked.key for asked in proxy.asked)
        create_topic(root, "orders", 3)

        with GroupMember(root, "group", ["orders"], session_timeout_ms=60_000) as member:
            wait_until("an assignment", lambda: member.poll_positions(500), LIMIT_S)
            member_id = member.member_id
            assert is_committed(member, 1)
            (executor,) = standalone.executors("worker-1")
            os.kill(executor, signal.SIGKILL)
            assert is_committed(member, 2)
            os.kill(first.pid, signal.SIGTERM)
            check_end(first.wait(120), standalone.text("first")[-2_000:], 143)
            standalone.submit("second", *submitted)
            standalone.wait_ready("second")
            assert is_committed(member, 3)
            # From the streaming checkpoint: the group is unchanged, and no member joined again.
            assert (member.member_id, member.generation) == (member_id, 1)
    finally:
        standalone.stop()
