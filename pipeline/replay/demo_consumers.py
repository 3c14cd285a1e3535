"""The demo's third scene: unmodified consumers of confluent-kafka share a table that Spark writes.

Spark, the gateway and each consumer are processes of their own. The table is made a topic, and
Spark appends to it while it is consumed.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.replay.child import Child
from group_coordinator.pipeline.terminal import grid
from group_coordinator.pipeline.topics import create_table_topic

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 6
CLIENT = "confluent-kafka"
_CONSUMERS = 3
_ROWS = 5_000
_SHOWN = 3
_TIME_LIMIT_S = 120.0
_BROKER = re.compile(r"gateway: broker \d+ at (\S+) serves")
COMMITTED_SQL = f"""\
SELECT topic, "partition", committed_offset FROM committed_offsets
WHERE group_id = '{GROUP}' ORDER BY ALL"""


def client_version() -> str | None:
    """The release of confluent-kafka that is installed, None if none is."""
    try:
        return version(CLIENT)
    except PackageNotFoundError:
        return None


class _Consumer(Child):
    """A consumer's process, the records that it was given and its partitions."""

    def __init__(self, number: int, broker: str, folder: Path) -> None:
        self.partitions: set[int] = set()
        self.records: list[list[Any]] = []
        module = "group_coordinator.pipeline.replay.kafka_consumer"
        super().__init__(f"consumer {number}", [module, broker, GROUP, TOPIC], folder)

    def listen(self) -> list[str]:
        """Read the consumer's new output; returns lines about its partitions for the screen."""
        lines = []
        for said in self.told():
            if "records" in said:
                self.records += said["records"]
                continue
            change = set(said["partitions"])
            gained = said["event"] == "assigned"
            self.partitions = self.partitions | change if gained else self.partitions - change
            if change:
                numbers = ", ".join(map(str, said["partitions"]))
                lines.append(f"{self.name} {said['event']} {numbers}")
        return lines


class ConsumersScene:
    """One run of the scene, on a root with a running coordinator.

    `begin` has Spark write the table meanwhile. `writer` is the module that does. `verbose` tells
    what was committed, and how many rows each consumer had.
    """

    def __init__(
        self,
        root: str,
        folder: Path,
        console: Console,
        writer: str = "group_coordinator.pipeline.replay.spark_orders",
        verbose: bool = False,
    ) -> None:
        self._verbose = verbose
        self._root = root
        self._folder = folder
        self._table = str(folder / TOPIC)
        self._console = console
        self._writer_module = writer
        self._client = client_version()
        self._writer: Child | None = None
        self._written = 0
        self._consumers: list[_Consumer] = []
        self._began = time.monotonic()

    def begin(self) -> None:
        """Have Spark start and write the table's first rows, if there is a client to read them."""
        if self._client is not None:
            arguments = [self._writer_module, self._table, str(_ROWS)]
            self._writer = Child("spark", arguments, self._folder)

    def run(self, check: Callable[[], None]) -> bool:
        """Run the scene; True if every row was consumed, or there is no client to consume them.

        `check` raises Failure if the coordinator has ended. Raises Failure if another process has.
        """
        if self._writer is None:
            self._console.print(
                f"\n{CLIENT} is not installed, so no scene shows it with the gateway: "
                f"`pip install {CLIENT}` brings it.",
                style="yellow",
            )
            return True
        self._began = time.monotonic()
        self._await_rows(self._writer, check)
        self._began = time.monotonic()
        gateway = Child(
            "gateway",
            [
                "group_coordinator",
                "gateway",
                "--root",
                self._root,
                "--listen",
                "127.0.0.1:0",
                "--until-eof",
            ],
            self._folder,
        )
        try:
            return self._share(self._writer, gateway, check)
        finally:
            for one in (*self._consumers, gateway):
                one.stop()
                one.wait()

    def end(self) -> None:
        """End what still runs, however the demo ended."""
        if self._writer is not None:
            self._writer.wait()

    def _share(self, writer: Child, gateway: Child, check: Callable[[], None]) -> bool:
        create_table_topic(self._root, TOPIC, PARTITIONS, self._table, key="customer")
        broker = self._await_broker(gateway, check)
        self._console.print(
            f"\n[bold]A Delta table of {_ROWS} orders, written by Spark, is a topic[/] that "
            f"{_CONSUMERS} consumers of {CLIENT} {self._client} share by a gateway at {broker}; "
            f"Spark appends {_ROWS} more."
        )
        for number in range(1, _CONSUMERS + 1):
            self._consumers.append(_Consumer(number, broker, self._folder))
        appends = False
        while self._elapsed < _TIME_LIMIT_S and len(self._seen) < 2 * _ROWS:
            check()
            for one in (writer, gateway, *self._consumers):
                one.check()
            for each in self._consumers:
                for line in each.listen():
                    self._say(line)
            self._count(writer)
            if not appends and all(each.partitions for each in self._consumers):
                appends = True
                writer.go_on()
            time.sleep(0.05)
        return self._conclude()

    def _await_rows(self, writer: Child, check: Callable[[], None]) -> None:
        with self._console.status("Spark writes a table"):
            while not self._written:
                check()
                writer.check()
                self._count(writer)
                self._check_time("Spark has written nothing", writer)
                time.sleep(0.05)

    def _await_broker(self, gateway: Child, check: Callable[[], None]) -> str:
        while (found := _BROKER.search(gateway.log())) is None:
            check()
            gateway.check()
            self._check_time("the gateway does not serve", gateway)
            time.sleep(0.05)
        return found[1]

    def _check_time(self, problem: str, child: Child) -> None:
        if self._elapsed > _TIME_LIMIT_S:
            raise Failure(f"{problem} after {_TIME_LIMIT_S:.0f} s: {child.log()[-1_000:]}")

    def _count(self, writer: Child) -> None:
        for said in writer.told():
            self._written += said["rows"]
            if self._consumers:
                self._say(f"Spark has appended {said['rows']} rows", "green")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _seen(self) -> Counter[int]:
        """How often each row's id was consumed."""
        return Counter(
            msgspec.json.decode(value)["id"]
            for each in self._consumers
            for *_, value in each.records
        )

    def _say(self, text: str, style: str = "") -> None:
        consumed = sum(len(each.records) for each in self._consumers)
        self._console.print(
            f"{self._elapsed:6.1f} s  {consumed:5} rows  {text}", style=style, markup=False
        )

    def _conclude(self) -> bool:
        seen, elapsed = self._seen, self._elapsed
        for each in self._consumers:
            each.stop()
        for each in self._consumers:
            each.wait()
            each.listen()
        console = self._console
        for partition, offset, key, value in self._consumers[0].records[:_SHOWN]:
            console.print(
                f"{TOPIC}-{partition} offset {offset}: {key} {value}", markup=False, style="dim"
            )
        if self._verbose:
            result = Catalog(self._root).query(COMMITTED_SQL)
            console.print(f"\n[bold]sql>[/] {COMMITTED_SQL}", highlight=False)
            console.print(grid(result.columns, result.rows))
            shown = [[each.name, len(each.records)] for each in self._consumers]
            console.print(grid(["consumer", "rows consumed"], shown))
        nobody = 2 * _ROWS - len(seen)
        twice = sum(1 for count in seen.values() if count > 1)
        console.print(
            f"[bold]{len(seen)} of {2 * _ROWS} rows were consumed[/]: {nobody} by nobody, "
            f"{twice} more than once, in {elapsed:.0f} s.",
            style="" if not nobody else "red",
        )
        return not nobody
