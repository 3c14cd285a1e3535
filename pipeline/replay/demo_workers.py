"""The demo's second scene: workers share a table while one is killed and one is added.

The rows are the recorded requests themselves, appended while the workers run. Each worker is
`group-coordinator worker` in a process of its own, and the rows that it put out are read from its
stdout. At least one worker must put out each row. Rows that the killed worker put out but did not
commit are put out again by another worker; they are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import write_deltalake
from rich.console import Console

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.replay.child import Child
from group_coordinator.pipeline.replay.trace import load_trace, trace_names
from group_coordinator.pipeline.terminal import grid
from group_coordinator.pipeline.topics import create_table_topic

TOPIC = "recorded"
GROUP = "workers"
PARTITIONS = 6
_WORKERS = 3
_CHUNKS = 50
# Shares of the rows, as divisors, after which a worker is killed, one is added, and rows are held
# back until the added one has partitions.
_KILL_AT, _ADD_AT, _HOLD_AT = 3, 1.5, 1.2
_EVERY_S = 0.25
_TIME_LIMIT_S = 120.0
_SETTINGS = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "auto.commit.interval.ms": 500,
}
COMMITTED_SQL = f"""\
SELECT topic, "partition", committed_offset FROM committed_offsets
WHERE group_id = '{GROUP}' ORDER BY ALL"""


def recorded_rows() -> list[dict[str, Any]]:
    """The requests of all recordings, as rows."""
    return [
        {
            "id": f"{name}/{line.request['request_id']}",
            "group_id": line.request["group_id"],
            "api": line.request["api"],
            "at_ms": line.at_ms,
            "request": msgspec.json.encode(line.request).decode(),
        }
        for name in trace_names()
        for line in load_trace(name).lines
        if line.request is not None
    ]


class _Worker(Child):
    """A worker's process, the rows that it put out and its partitions."""

    def __init__(self, number: int, root: str, folder: Path) -> None:
        self.partitions: set[int] = set()
        self.ids: list[str] = []
        options = ["--root", root, "--group", GROUP, "--topic", TOPIC, "--json"]
        for key, value in _SETTINGS.items():
            options += ["--consumer-property", f"{key}={value}"]
        super().__init__(f"worker {number}", ["group_coordinator", "worker", *options], folder)

    def kill(self) -> None:
        """Kill the process: it neither commits nor leaves the group."""
        super().kill()
        self.partitions = set()

    def listen(self) -> list[str]:
        """Read the worker's new output; returns lines about its partitions for the screen."""
        self.ids += [row["row"]["id"] for row in self.told()]
        lines = []
        for said in self.logged():
            if "event" not in said or self.killed:
                continue
            if said["event"] == "assigned":
                self.partitions |= set(said["partitions"])
            else:
                self.partitions -= set(said["partitions"])
            numbers = ", ".join(map(str, said["partitions"])) or "nothing"
            lines.append(f"{self.name} {said['event']} {numbers}, generation {said['generation']}")
        return lines


class WorkersScene:
    """One run of the scene, on a root with a running coordinator.

    `verbose` tells of every change of a worker's partitions, and what was committed.
    """

    def __init__(self, root: str, folder: Path, console: Console, verbose: bool = False) -> None:
        self._verbose = verbose
        self._root = root
        self._folder = folder
        self._table = str(folder / TOPIC)
        self._console = console
        self._workers: list[_Worker] = []
        self._rows = recorded_rows()
        self._fed = 0
        self._began = time.monotonic()

    def run(self, check: Callable[[], None]) -> bool:
        """Run the scene; True if every row was put out.

        `check` raises Failure if the coordinator has ended. Raises Failure if a worker ended.
        """
        rows = len(self._rows)
        self._console.print(
            f"\n[bold]The {rows} recorded requests become rows of a table[/] that {_WORKERS} "
            f"workers share by {PARTITIONS} partitions; one worker is killed, one is added."
        )
        self._feed()
        create_table_topic(self._root, TOPIC, PARTITIONS, self._table, key="id")
        try:
            for _ in range(_WORKERS):
                self._start()
            self._play(check)
        finally:
            for worker in self._workers:
                worker.stop()
            for worker in self._workers:
                worker.wait()
                worker.listen()
        return self._conclude()

    def _play(self, check: Callable[[], None]) -> None:
        next_at = time.monotonic()
        while self._elapsed < _TIME_LIMIT_S and not self._all_put_out:
            check()
            for worker in self._workers:
                worker.check()
                for line in worker.listen():
                    if self._verbose or " assigned nothing" not in line:
                        self._say(line)
            if self._may_feed and time.monotonic() >= next_at:
                next_at = time.monotonic() + _EVERY_S
                self._feed()
                self._change_workers()
            time.sleep(0.05)

    @property
    def _all_put_out(self) -> bool:
        return set().union(*(worker.ids for worker in self._workers)) >= self._all_ids

    @property
    def _may_feed(self) -> bool:
        """Whether to append rows: the first ones wait until all workers have partitions, the last
        ones until the added worker has some.
        """
        if self._fed == len(self._rows):
            return False
        early = self._fed * _KILL_AT < len(self._rows)
        late = self._fed * _HOLD_AT > len(self._rows)
        waits = early or late
        return not waits or all(worker.partitions for worker in self._workers if not worker.killed)

    def _change_workers(self) -> None:
        victim = self._workers[1]
        if not victim.killed and self._fed * _KILL_AT >= len(self._rows):
            self._say(f"{victim.name} is killed", "red")
            victim.kill()
        if len(self._workers) == _WORKERS and self._fed * _ADD_AT >= len(self._rows):
            self._say(f"{self._start().name} is added", "green")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _all_ids(self) -> set[str]:
        return {row["id"] for row in self._rows}

    def _feed(self) -> None:
        """Append the next rows."""
        count = -(-len(self._rows) // _CHUNKS)
        chunk = self._rows[self._fed : self._fed + count]
        write_deltalake(self._table, pa.Table.from_pylist(chunk), mode="append")
        self._fed += len(chunk)

    def _start(self) -> _Worker:
        number = len(self._workers) + 1
        self._workers.append(_Worker(number, self._root, self._folder))
        return self._workers[-1]

    def _say(self, text: str, style: str = "") -> None:
        fed = f"{self._fed:5} rows"
        self._console.print(f"{self._elapsed:6.1f} s  {fed}  {text}", style=style, markup=False)

    def _conclude(self) -> bool:
        console = self._console
        if self._verbose:
            result = Catalog(self._root).query(COMMITTED_SQL)
            console.print(f"\n[bold]sql>[/] {COMMITTED_SQL}", highlight=False)
            console.print(grid(result.columns, result.rows))
            shown = [
                [worker.name, len(worker.ids), "killed" if worker.killed else ""]
                for worker in self._workers
            ]
            console.print(grid(["worker", "rows put out", ""], shown))
        times = Counter(one for worker in self._workers for one in worker.ids)
        nobody = len(self._all_ids - times.keys())
        twice = sum(1 for count in times.values() if count > 1)
        console.print(
            f"[bold]{len(times)} of {len(self._rows)} rows were put out[/]: {nobody} by nobody, "
            f"{twice} more than once, in {self._elapsed:.0f} s.",
            style="" if not nobody else "red",
        )
        return not nobody
