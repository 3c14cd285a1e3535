"""Unmodified consumers of confluent-kafka, each a process: the example for users."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.sharing.child import Child

_BROKER = re.compile(r"gateway: broker \d+ at (\S+) serves")


class Gateway(Child):
    """A gateway in front of a root, which ends with its input."""

    def __init__(self, root: str, folder: Path) -> None:
        where = ["--root", root, "--listen", "127.0.0.1:0", "--until-eof"]
        super().__init__("gateway", ["group_coordinator", "gateway", *where], folder)

    @property
    def broker(self) -> str | None:
        """Return its address, once it serves."""
        found = _BROKER.search(self.log())
        return None if found is None else found[1]


class Consumer(Child):
    """A consumer's process, its records and its partitions."""

    def __init__(self, number: int, broker: str, group: str, topic: str, folder: Path) -> None:
        self.partitions: set[int] = set()
        self.records: list[list[Any]] = []
        module = "group_coordinator.conf.examples.kafka_consumer"
        super().__init__(f"consumer {number}", [module, broker, group, topic], folder)

    def listen(self) -> None:
        """Read its new output."""
        for said in self.told():
            if "records" in said:
                self.records += said["records"]
                continue
            change = set(said["partitions"])
            gained = said["event"] == "assigned"
            self.partitions = self.partitions | change if gained else self.partitions - change

    def ids(self) -> Counter[int]:
        """Return how often it got each row, by the row's id."""
        return Counter(msgspec.json.decode(value)["id"] for *_, value in self.records)
