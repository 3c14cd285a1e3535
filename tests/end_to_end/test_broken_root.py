"""With a full disk or without its root, the coordinator ends with a message and loses nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.end_to_end.cluster import Cluster
from tests.end_to_end.live import LiveFleet, committed_offsets
from tests.ends import check_end
from tests.support.process import KillableCoordinator
from tests.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]

# The free bytes for the last requests when the disk is filled.
SPARE_BYTES = 256 * 1024
END_TIMEOUT_S = 120.0
LINE_BEGINS = "group-coordinator: "


def fill(disk: Path, spare: int) -> Path:
    """Leave `spare` bytes of the disk free; return the file that occupies the rest."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        while (free := shutil.disk_usage(disk).free - spare) > 0:
            try:
                file.write(bytes(min(free, 1024 * 1024)))
                file.flush()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
    return ballast


def ask_until_it_fails(live: LiveFleet) -> None:
    """Let members send requests until the disk is full."""
    limit = time.monotonic() + END_TIMEOUT_S
    while True:
        assert time.monotonic() < limit, "there is still room"
        before = dict(live.asked)
        try:
            live.ask()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            live.asked = before
            return


def await_end(process: KillableCoordinator) -> str:
    """Return the one line with which it ended by itself, with status 1."""
    wait_until("the coordinator goes on", process.has_ended, END_TIMEOUT_S)
    check_end(process.stop(), process.log_path, 1)
    lines = process.log_path.read_text("utf-8", "replace").splitlines()
    (line,) = (line for line in lines if line.startswith(LINE_BEGINS))
    return line.removeprefix(LINE_BEGINS)


def answers_everything(cluster: Cluster, node_id: int) -> None:
    """Assert that a later start answers each waiting request once, and has all commits."""
    live = cluster.live
    live.listen()
    acknowledged = dict(live.acknowledged)
    assert acknowledged, "something was acknowledged before"
    live.ask()
    cluster.start(node_id)
    live.await_all()
    committed = committed_offsets(cluster.root)
    for group_id, offset in acknowledged.items():
        assert committed[group_id] >= offset
    cluster.check()


@pytest.mark.long
def test_a_full_disk_is_named_and_nothing_is_lost(cluster: Cluster, small_disk: Path | str) -> None:
    assert isinstance(small_disk, Path), f"a small disk needs a tmpfs, and {small_disk}"
    node_id, process = cluster.one()
    cluster.ask_for(5)
    # Requests arrive while it is suspended, and leave no space for their responses. If it had
    # answered them before the disk is full, it would have nothing to write, and continue.
    os.killpg(process.pid, signal.SIGSTOP)
    ballast = fill(small_disk, SPARE_BYTES)
    try:
        ask_until_it_fails(cluster.live)
        fill(small_disk, 0)
        os.killpg(process.pid, signal.SIGCONT)
        line = await_end(process)
    finally:
        process.kill()
        ballast.unlink()
    assert "No space left on device" in line
    assert cluster.root in line
    answers_everything(cluster, node_id)


def test_a_root_that_disappears_is_named_and_nothing_is_lost(cluster: Cluster) -> None:
    root, away = Path(cluster.root), cluster.disk / "away"
    node_id, process = cluster.one()
    cluster.ask_for(5)
    cluster.live.ask()
    os.rename(root, away)
    try:
        line = await_end(process)
    finally:
        process.kill()
        # The ending coordinator may have created files under the old name.
        shutil.rmtree(root, ignore_errors=True)
        os.rename(away, root)
    assert str(root) in line
    answers_everything(cluster, node_id)
