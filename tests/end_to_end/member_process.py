"""A member in a separate process. Lines on stdin are its commands, and it reports by lines.

Run as a module it is the process. `MemberProcess` controls it from a test.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from group_coordinator.pipeline.client import GroupMember, TopicPartition
from tests.ends import check_end

WAIT_S = 90.0


# --- the process ----------------------------------------------------------------------------------


class Program:
    """A loop that polls every 50 ms, advances its positions by one, and executes commands."""

    def __init__(self, root: str, group: str, settings: dict[str, Any]) -> None:
        self._polls = True
        self._commands: list[list[Any]] = []
        self._member = GroupMember(
            root,
            group,
            ["t"],
            on_assigned=lambda partitions: self._told("assigned", partitions),
            on_revoked=lambda partitions: self._told("revoked", partitions),
            on_lost=lambda partitions: self._told("lost", partitions),
            settings=settings,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._commands.append(json.loads(line))

    def _told(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        member = self._member
        owned = set() if what == "lost" else {p.partition for p in member.assignment}
        gone = {p.partition for p in partitions} if what == "revoked" else set()
        self.say(
            what=what,
            partitions=[p.partition for p in partitions],
            owned=sorted(owned - gone),
            generation=member.generation,
            member_id=member.member_id,
        )

    def say(self, **line: Any) -> None:
        print(json.dumps(line), flush=True)

    def run(self) -> None:
        with self._member:
            while True:
                for command in self._commands[:]:
                    self._commands.remove(command)
                    if command[0] == "close":
                        return
                    getattr(self, command[0])(*command[1:])
                if self._polls:
                    self._poll()
                time.sleep(0.05)

    def _poll(self) -> None:
        for one, offset in self._member.poll_positions(200).items():
            self._member.advance(one, offset + 1)

    # --- commands -------------------------------------------------------------------------------

    def polls(self, whether: bool) -> None:
        self._polls = whether

    def hold(self, seconds: int) -> None:
        """Hold the interpreter, so that no other thread of the process runs."""
        self.say(what="holding")
        ctypes.PyDLL(None).sleep(seconds)
        self.say(what="held")

    def commit(self) -> None:
        positions = self._positions()
        self._member.commit()
        self.say(what="committed", positions=positions)

    def _positions(self) -> dict[int, int | None]:
        return {one.partition: self._member.position(one) for one in self._member.assignment}

    def positions(self) -> None:
        """Poll until all positions are known."""
        while None in self._positions().values():
            self._member.poll_positions(200)
        self.say(what="positions", positions=self._positions())


# --- the test's end -------------------------------------------------------------------------------


class MemberProcess:
    """The process, controlled by a test; the attribute `told` has its lines so far."""

    def __init__(self, root: str, group: str, log: Path, **settings: Any) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.started = time.monotonic()
        self.told: list[dict[str, Any]] = []
        self._heard = threading.Condition()
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, root, group, json.dumps(named)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it wrote this line
            with self._heard:
                self.told.append({**json.loads(line), "at": time.monotonic()})
                self._heard.notify_all()

    def do(self, command: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps([command, *arguments]), file=self._process.stdin, flush=True)

    def ask(self, command: str, answer: str, *arguments: Any) -> dict[str, Any]:
        """Send a command, and return the line that answers it."""
        with self._heard:
            since = len(self.told)
        self.do(command, *arguments)
        return self.until(lambda line: line["what"] == answer, since)

    def until(self, wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """Wait for a line, and return it."""
        with self._heard:
            found = self._heard.wait_for(
                lambda: [line for line in self.told[since:] if wanted(line)], WAIT_S
            )
            assert found, f"{self.told}\n{self._log.read_text()}"
            return found[0]

    def until_owns(self, count: int, since: int = 0) -> dict[str, Any]:
        """Wait for an assignment after which it owns this number of partitions."""
        return self.until(
            lambda line: line["what"] == "assigned" and len(line["owned"]) == count, since
        )

    @property
    def owned(self) -> set[int]:
        """Return its partitions, as of its last report."""
        return set([line for line in self.told if "owned" in line][-1]["owned"])

    def close(self) -> None:
        """Let it leave, and wait for its end."""
        self.do("close")
        check_end(self._process.wait(WAIT_S), self._log)
        self._end()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._end()

    def _end(self) -> None:
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


if __name__ == "__main__":
    Program(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
