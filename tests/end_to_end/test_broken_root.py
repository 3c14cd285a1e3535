"""The root's disk is full, or the root is gone: the coordinator names it, and nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import Failure
from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import ensure_tables
from tests.end_to_end.live import LiveFleet, committed_offsets

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DISK_BYTES = 64 * 1024 * 1024
# What is left for the last requests when the disk is filled.
SPARE_BYTES = 256 * 1024
END_TIMEOUT_S = 120.0
LINE_BEGINS = "group-coordinator: "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, small enough to be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={DISK_BYTES}"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
            capture_output=True,
            text=True,
        )
    except OSError as error:
        pytest.skip(f"a small disk needs a tmpfs, and there is no mount: {error}")
    if done.returncode:
        pytest.skip(f"a small disk needs a tmpfs, which only root may mount: {done.stderr.strip()}")
    yield folder
    # Lazily: whoever still has a file open there must not make the test's end fail.
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "c.toml"
    file.write_text('[group]\n"group.initial.rebalance.delay.ms" = 1000\n')
    return file


def begin(root: Path, config: Path, log: Path) -> tuple[CoordinatorProcess, LiveFleet]:
    """A coordinator, and members that have made their first commits."""
    ensure_tables(str(root))
    process = CoordinatorProcess(str(root), config, log)
    try:
        process.await_ready()
        live = LiveFleet(str(root))
        live.fleet.form_groups()
        for _ in range(5):
            live.ask()
            time.sleep(0.1)
        live.await_all()
    except BaseException:
        process.kill()
        raise
    return process, live


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


def ask_until_it_fails(live: LiveFleet, process: CoordinatorProcess) -> None:
    """Members ask on until a request finds no place, or there is nobody to answer."""
    limit = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < limit and not has_ended(process):
        before = dict(live.asked)
        try:
            live.ask()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            live.asked = before
            return
        time.sleep(0.05)


def has_ended(process: CoordinatorProcess) -> bool:
    try:
        process.check()
    except Failure:
        return True
    return False


def await_end(process: CoordinatorProcess) -> str:
    """The one line with which it ended by itself, status 1."""
    limit = time.monotonic() + END_TIMEOUT_S
    while not has_ended(process):
        assert time.monotonic() < limit, "the coordinator goes on"
        time.sleep(0.1)
    assert process.stop() == 1
    lines = process.log_path.read_text("utf-8", "replace").splitlines()
    (line,) = (line for line in lines if line.startswith(LINE_BEGINS))
    return line.removeprefix(LINE_BEGINS)


def answers_everything(root: Path, config: Path, log: Path, live: LiveFleet) -> None:
    """A later start answers what was waiting, each request once, and has every commit."""
    live.listen()
    acknowledged = dict(live.acknowledged)
    assert acknowledged, "something was acknowledged before"
    live.ask()
    process = CoordinatorProcess(str(root), config, log)
    try:
        process.await_ready()
        live.await_all()
        live.ask()
        live.await_all()
    finally:
        assert process.stop() == 0
    live.listen()
    assert set(live.answers.values()) == {1}, "every request is answered once"
    assert not live.errors
    committed = committed_offsets(str(root))
    for group_id, offset in acknowledged.items():
        assert committed[group_id] >= offset
    assert committed == live.acknowledged


def test_a_full_disk_is_named_and_nothing_is_lost(disk: Path, config: Path, tmp_path: Path) -> None:
    root = disk / "root"
    process, live = begin(root, config, tmp_path / "first.log")
    try:
        ballast = fill(disk, SPARE_BYTES)
        ask_until_it_fails(live, process)
        fill(disk, 0)
        line = await_end(process)
    finally:
        process.kill()
    assert "No space left on device" in line
    assert str(root) in line
    ballast.unlink()
    answers_everything(root, config, tmp_path / "second.log", live)


def test_a_root_that_disappears_is_named_and_nothing_is_lost(tmp_path: Path, config: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    process, live = begin(root, config, tmp_path / "first.log")
    try:
        live.ask()
        os.rename(root, away)
        line = await_end(process)
    finally:
        process.kill()
    assert str(root) in line
    # What was made anew under the old name on the way down is nobody's.
    shutil.rmtree(root, ignore_errors=True)
    os.rename(away, root)
    answers_everything(root, config, tmp_path / "second.log", live)
