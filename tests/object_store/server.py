"""A server of a store, in a separate process, started on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ends import check_runs
from tests.waiting import wait_until

BUCKET = "bucket"
# The folder of programs that were built or installed for the tests.
KEPT = Path.home() / ".cache" / "group-coordinator"
_LIMIT_S = 30.0


class Server(ABC):
    """A running server with one bucket, `BUCKET`; it listens on `port`."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process = subprocess.Popen(
            self._command(folder),
            env={**os.environ, **self._its_environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Server:
        wait_until("the server takes a connection", self._answers, _LIMIT_S)
        self._make_bucket()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def _answers(self) -> bool:
        check_runs(self._process.poll())
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    @abstractmethod
    def _command(self, folder: Path) -> list[str]:
        """Return the server's command, which may use the folder. Fails the test without it."""

    def _its_environment(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def _make_bucket(self) -> None: ...

    @abstractmethod
    def environment(self, port: int) -> dict[str, str]:
        """Return the environment of a client of the server, or of a proxy in front of it."""

    @abstractmethod
    def uri(self, path: str, bucket: str = BUCKET) -> str:
        """Return the URI of a path in a bucket."""

    @abstractmethod
    def wrong_key(self) -> dict[str, str]:
        """Return variables that replace the right key by a wrong one; empty without keys."""

    def translated(self, head: bytes) -> bytes:
        """Return a request's head in the server's API, if it differs from its store's."""
        return head

    def answered(self, _head: bytes, answer: bytes) -> bytes:
        """Return the response to a request as its store would give it."""
        return answer


def go_program(variable: str, name: str, module: str) -> str:
    """Return the path of a program in Go: the variable's, one on the PATH, or one built by Go.

    The build takes some minutes once. Fails the test if there is no program.
    """
    built = KEPT / name
    found = os.environ.get(variable) or shutil.which(name) or (built.exists() and str(built))
    if found:
        return found
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.fail(f"needs {name}, on the PATH or in {variable}, or Go", pytrace=False)
    environment = {**os.environ, "GOBIN": str(KEPT), "CGO_ENABLED": "0"}
    _made(name, [go, "install", module], environment)
    return str(built)


def npm_program(variable: str, name: str, package: str) -> str:
    """Return the path of a program in JavaScript: found as a `go_program`, or installed by npm."""
    folder = KEPT / package.partition("@")[0]
    installed = folder / "node_modules" / ".bin" / name
    found = os.environ.get(variable) or shutil.which(name)
    if found is None and installed.exists():
        found = str(installed)
    if found is not None:
        return found
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail(f"needs {name}, on the PATH or in {variable}, or npm", pytrace=False)
    folder.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--prefix", str(folder)]
    _made(name, [npm, "install", *quiet, package], dict(os.environ))
    return str(installed)


def _made(name: str, command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{name} cannot be made: {done.stderr[-200:]}", pytrace=False)
