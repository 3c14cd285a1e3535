"""A consumer in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.ends import check_runs


class ConsumerProcess:
    """A program of `consumers`, and the lines that it has written whole.

    `how`: the gateway's address, the assignor, and the group.instance.id or None.
    """

    def __init__(self, folder: Path, number: int, client: str, *how: str | None) -> None:
        self._rows = folder / f"consumer-{number}"
        self._log = folder / f"consumer-{number}.log"
        module = f"tests.pipeline.gateway.consumers.{client}"
        with self._rows.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(how)], stdout=out, stderr=log
            )
        self._killed = False

    def rows(self) -> list[tuple[int, ...]]:
        """What it worked on: partition, offset and `n` of each record."""
        if not self._killed:
            check_runs(self._process.poll(), self._log)
        content = self._rows.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        return [tuple(map(int, line.split())) for line in whole.splitlines()]

    def kill(self) -> None:
        """Kill it: it neither commits nor leaves the group."""
        self._killed = True
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
