"""The root's disk is full, or the root is gone: the coordinator names it, and nothing is lost."""

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

# What is left for the last requests when the disk is filled.
SPARE_BYTES = 256 * 1024
END_TIMEOUT_S = 120.0
LINE_BEGINS = "group-coordinator: "


def fill(disk: Path, spare: int) -> Path:
    """Leave `spare` bytes of the disk free; return the file that takes up the rest."""
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
    """Members ask on until a request finds no place."""
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
    """The one line with which it ended by itself, status 1."""
    wait_until("the coordinator goes on", process.has_ended, END_TIMEOUT_S)
    check_end(process.stop(), process.log_path, 1)
    lines = process.log_path.read_text("utf-8", "replace").splitlines()
    (line,) = (line for line in lines if line.startswith(LINE_BEGINS))
    return line.removeprefix(LINE_BEGINS)


def answers_everything(cluster: Cluster, node_id: int) -> None:
    """A later start answers what was waiting, each request once, and has every commit."""
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
    # While it stands still requests come, which leave no room for their answers: it would have
    # nothing to write, and go on, if it had answered them before the disk is full.
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
        # What was made anew under the old name on the way down is nobody's.
        shutil.rmtree(root, ignore_errors=True)
        os.rename(away, root)
    assert str(root) in line
    answers_everything(cluster, node_id)
