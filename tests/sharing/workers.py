"""Workers, each `group-coordinator worker` in a separate process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.sharing.child import Child


class Worker(Child):
    """A worker's process, its output rows by their ids, and its partitions."""

    def __init__(
        self, number: int, root: str, folder: Path, topic: str, settings: Mapping[str, int]
    ) -> None:
        self.partitions: set[int] = set()
        self.ids: list[str] = []
        options = ["--root", root, "--group", "workers", "--topic", topic, "--json"]
        for key, value in settings.items():
            options += ["--consumer-property", f"{key}={value}"]
        super().__init__(f"worker {number}", ["group_coordinator", "worker", *options], folder)

    def listen(self) -> None:
        """Read its new output."""
        self.ids += [row["row"]["id"] for row in self.told()]
        for said in self.logged():
            if "event" not in said:
                continue
            if said["event"] == "assigned":
                self.partitions |= set(said["partitions"])
            else:
                self.partitions -= set(said["partitions"])
