"""Temporary folders are deleted by a later start if their process was killed, and not before."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.session import scratch
from group_coordinator.pipeline.session.fork_server import ForkServer
from group_coordinator.pipeline.session.scratch import ScratchFolder, sweep
from group_coordinator.pipeline.stream.timer_schedule import WakeFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels that say who they are")

# A process with a folder, which tells the folder's path and waits to be killed.
OWNER = (
    "import sys, time; from {0} import {1}; it = {1}{2}; print(it{3}, flush=True); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def folder() -> Iterator[Path]:
    """The folder for temporary files, whose path is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def begun(owner: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a process in a session of its own; return it and what it tells."""
    process = subprocess.Popen(
        [sys.executable, "-c", owner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process with all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "owner",
    [
        OWNER.format("group_coordinator.pipeline.session.scratch", "ScratchFolder", "()", ".path"),
        OWNER.format(
            "group_coordinator.pipeline.stream.timer_schedule", "WakeFile", ".create()", ".path"
        ),
        OWNER.format(
            "group_coordinator.pipeline.session.fork_server", "ForkServer", "({}, [])", ".python"
        ),
    ],
)
def test_what_a_killed_process_has_left_is_swept(folder: Path, owner: str):
    process, path = begun(owner)
    sweep()
    assert path.exists(), "it lives"
    killed(process)
    assert path.exists(), "it could not delete it"
    sweep()
    assert not any(folder.iterdir())


def test_a_process_that_ends_leaves_nothing(folder: Path):
    process, path = begun(
        OWNER.format("group_coordinator.pipeline.session.scratch", "ScratchFolder", "()", ".path")
    )
    assert path.is_dir()
    process.communicate("")
    assert not any(folder.iterdir())


def test_a_folder_is_its_owner_s_alone_and_goes_with_it(folder: Path):
    made, other = ScratchFolder(), ScratchFolder()
    (made.path / "file").touch()
    assert made.path.stat().st_mode & 0o777 == 0o700
    sweep()
    assert sorted(folder.iterdir()) == sorted([made.path, other.path])
    made.delete()
    made.delete()
    assert [*folder.iterdir()] == [other.path]
    del other
    assert not any(folder.iterdir())


def test_a_folder_that_is_being_made_is_not_swept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Two coordinators start in the same second: one sweeps before the other has its lock."""
    lock = fcntl.flock

    def late(number: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        sweep()
        lock(number, how)

    monkeypatch.setattr(fcntl, "flock", late)
    made = ScratchFolder()
    assert [*folder.iterdir()] == [made.path]
    sweep()
    assert made.path.is_dir()


def test_folders_of_others_are_let_be(folder: Path, monkeypatch: pytest.MonkeyPatch):
    mine = Path(scratch._swept_prefix())
    names = ["group-coordinator-0123456789", "group-coordinator-other000-abcd", f"{mine}-file"]
    for name in ("elsewhere", *names[:2]):
        (folder / name).mkdir()
    (folder / names[2]).touch()
    (folder / f"{mine}link").symlink_to(folder / "elsewhere")
    before = sorted(folder.rglob("*"))
    sweep()
    assert sorted(folder.rglob("*")) == before
    theirs = folder / f"{mine}theirs"
    theirs.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep()
    assert theirs.is_dir()
    monkeypatch.undo()
    sweep()
    assert not theirs.exists(), "nobody has a lock on it"


def test_where_the_kernel_says_nothing_nothing_is_swept(folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scratch, "_BOOT_ID", folder / "none")
    made = ScratchFolder()
    sweep()
    assert [*folder.iterdir()] == [made.path]
    made.delete()
    assert not any(folder.iterdir())


def test_on_a_disk_without_locks_nothing_is_swept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(_number: int, _how: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refused)
    made = ScratchFolder()
    monkeypatch.undo()
    sweep()
    assert [*folder.iterdir()] == [made.path]


def test_the_folder_of_a_wake_file_and_of_a_server_goes_with_them(folder: Path):
    file, server = WakeFile.create(), ForkServer({}, [])
    assert len([*folder.iterdir()]) == 2
    file.delete()
    server.end()
    assert not any(folder.iterdir())
