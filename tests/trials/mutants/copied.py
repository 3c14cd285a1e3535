"""A copy of the checkout in which a file can be changed, and tests run on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from group_coordinator.pipeline.errors import Failure

_ORIGINS = """
import importlib.util, sys
for name in sys.argv[1:]:
    print(importlib.util.find_spec(name).origin)
"""


class Copied:
    """A checkout in a separate folder. Its processes import the product from this folder only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(folder), str(folder / ".src")])
        # This process may be a test itself.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        self._environment = {**inherited, "PYTHONPATH": path}
        # Bytecode is validated by the hash of its source: a mutant may have the length of the
        # original, and both may be written within a second.
        compiling = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."]
        subprocess.run([sys.executable, *compiling], cwd=folder, check=True, capture_output=True)

    @contextmanager
    def with_text(self, file: str, text: str) -> Iterator[None]:
        """Replace the text of a file for the block."""
        path = self.folder / file
        before = path.read_bytes()
        path.write_text(text, "utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)

    def run_tests(self, tests: Sequence[str], limit_s: float | None) -> tuple[int | None, str]:
        """Run tests up to the first failure; return pytest's exit status and its output.

        The status is None after a timeout.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider"]
        # Importing this plugin loads trio, which takes a fifth of a run.
        command += ["-p", "no:anyio"]
        with subprocess.Popen(
            [*command, *tests],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as running:
            try:
                said, _ = running.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                # This also kills the processes that the tests have started.
                _kill_group(running.pid)
        return running.returncode, said

    def check_imports(self, files: Iterable[str]) -> None:
        """Raise Failure if a module of these is imported from anywhere but this copy."""
        modules = {
            f"group_coordinator.{file.removesuffix('.py').replace('/', '.')}": self.folder / file
            for file in files
            if file.endswith(".py")
        }
        command = [sys.executable, "-c", _ORIGINS, *modules]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            raise Failure(f"the copied product cannot be imported: {done.stderr}")
        for (module, file), origin in zip(modules.items(), done.stdout.splitlines(), strict=True):
            if not os.path.samefile(file, origin):
                raise Failure(f"{module} is {origin}, and not the copy's")


def copy_checkout(top: Path, folder: Path) -> Copied:
    """Copy the files in git with their current content. Raises Failure outside a clone."""
    command = ["git", "-C", str(top), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise Failure(f"a clone is copied only: {listed.stderr.strip()}")
    for name in listed.stdout.rstrip("\0").split("\0"):
        if (top / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(top / name, folder / name, follow_symlinks=False)
    return Copied(folder)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
