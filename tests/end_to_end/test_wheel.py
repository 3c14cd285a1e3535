"""The wheel in separate environments, outside a clone: with all extras, and without any."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ends import check_end
from tests.users import make_own_folders
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]
TOP = Path(__file__).parents[2]
LIMIT_S = 600.0
# A member of the other environment, which has no Spark.
MEMBER = """
import sys
from group_coordinator import GroupMember, TopicPartition
with GroupMember(sys.argv[1], "g", {"t": 3}) as member:
    while not member.assignment:
        member.poll_positions(1_000)
    first = TopicPartition("t", 0)
    member.commit({first: 7})
    print(sorted(member.assignment), member.committed([first])[first].offset)
"""


class Environment:
    """A virtual environment, and a working directory for its commands with a user's folders."""

    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder = folder / "user"
        make_own_folders(self.folder)
        venv.create(folder / "venv", with_pip=True)
        self._bin = folder / "venv" / "bin"
        self.run("pip", "install", "-q", *packages)

    def command(self, name: str, *arguments: str) -> list[str]:
        return [str(self._bin / name), *arguments]

    def run(self, name: str, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; return its output."""
        done = subprocess.run(
            self.command(name, *arguments),
            cwd=self.folder,
            env=clean(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        check_end(done.returncode, done.stdout, code)
        return done.stdout

    @contextmanager
    def running(self, verb: str, said: str, *arguments: str) -> Iterator[re.Match[str]]:
        """Run a command until the block ends; yield the match of its output once it serves."""
        log = self.folder / f"{verb}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.command("group-coordinator", verb, *arguments),
                cwd=self.folder,
                env=clean(),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            yield wait_until(log.read_text, lambda: re.search(said, log.read_text()), LIMIT_S)
            process.send_signal(signal.SIGTERM)
            check_end(process.wait(120), log.read_text())
        finally:
            process.kill()
            process.wait()


def clean() -> dict[str, str]:
    """Return this process's environment, without paths of Python's packages."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that `python -m build` makes of an sdist, with the files of the tree."""
    folder = tmp_path_factory.mktemp("build")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=TOP, text=True).split("\0")[:-1]:
        if not (TOP / name).is_symlink() and not (TOP / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, folder / name, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    check_end(done.returncode, done.stdout + done.stderr)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("whole"), f"{wheel}[coordinator,ui]")


@pytest.fixture(scope="module")
def without_traceback(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("bare"), str(wheel))


def test_the_demo_runs(whole: Environment) -> None:
    assert "1084 of 1084 answers equal the real broker's" in whole.run("group-coordinator", "demo")


def test_a_coordinator_serves_members_without_spark(
    whole: Environment, bare: Environment, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    at = ("--root", root, "--listen", "127.0.0.1:0")
    with (
        whole.running("run", "^ready$|\nready\n", "--root", root),
        whole.running("metrics", r"127\.0\.0\.1:\d+", *at),
        whole.running("ui", r"127\.0\.0\.1:\d+", *at),
        bare.running("gateway", r"at 127\.0\.0\.1:\d+ serves", *at),
    ):
        assert bare.run("python", "-c", MEMBER, root).endswith("7\n")
        listed = bare.run("group-coordinator", "groups", "list", "--root", root, "--format", "json")
        assert '"group_id":"g"' in listed.replace(" ", "")


def test_what_needs_spark_says_what_to_install(bare: Environment) -> None:
    said = bare.run("group-coordinator", "run", "--root", "r", code=1)
    advice = said.partition("pip install ")[2]
    assert "pyspark" in said and advice
    bare.run("pip", "install", "-q", "--dry-run", *advice.replace("'", "").split())
