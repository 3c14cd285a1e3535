"""A process, and the JSON Lines that it writes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from group_coordinator.pipeline.errors import Failure

_END_S = 30.0


class Child:
    """A process `python -m` with these arguments, in a separate session; `name` is for messages.

    Its output and its log are files of `folder`. If it reads its input, it ends with that.
    """

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.killed = False
        file_name = name.replace(" ", "-")
        self._paths = [folder / f"{file_name}.{kind}" for kind in ("out", "log")]
        self._read = [0, 0]
        with self._paths[0].open("wb") as out, self._paths[1].open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the process at once."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM to the process."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the process to end, and kill it after 30 s."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raise Failure if the process ended by itself."""
        if self._process.poll() is not None and not self.killed:
            raise Failure(f"{self.name} ended: {' '.join(self.log().splitlines()[-3:])}")

    def go_on(self) -> None:
        """Send the process a line on its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def log(self) -> str:
        """Return its whole stderr."""
        return self._paths[1].read_text("utf-8", "replace")

    def told(self) -> list[dict[str, Any]]:
        """Return the new JSON objects on stdout."""
        return self._new(0)

    def logged(self) -> list[dict[str, Any]]:
        """Return the new JSON objects on stderr; other lines are log messages."""
        return self._new(1)

    def _new(self, which: int) -> list[dict[str, Any]]:
        with self._paths[which].open("rb") as file:
            file.seek(self._read[which])
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read[which] += len(whole)
        return [msgspec.json.decode(line) for line in whole.splitlines() if line.startswith(b"{")]
