"""One incarnation of a topic: the records of its commits, and those removed since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow.compute as pc

from tests.trials.gateways.promises import KEPT

if TYPE_CHECKING:
    from tests.trials.simulation.world import Process, World

# For how long a topic keeps its records, ms, where it is not a week.
RETENTION_MS = {"short": 1_000}


class Log:
    """One incarnation of a topic, created at `made_at`, ms: each partition's values, by offset."""

    def __init__(self, table: str, topic: str, made_at: float = 0.0) -> None:
        self.table = table
        self.topic = topic
        self.made_at = made_at
        self.partitions: dict[int, list[bytes]] = {}
        self.is_deleted = False
        # Whether the table was deleted, and another one created in its folder.
        self.is_replaced = False
        # The offset of each partition after all records that were removed, or deleted by VACUUM;
        # and the time of each record of a topic's table, ms, by its producer.
        self.starts: dict[int, int] = {}
        self.times: dict[int, list[int]] = {}
        # Of each sender, producer id and partition the number of its last record.
        self.last: dict[tuple[str, int, int], int] = {}

    def start(self, partition: int) -> int:
        """Return the first offset that a partition may still have after the removals."""
        return self.starts.get(partition, 0)

    def partition(self, number: int) -> list[bytes]:
        """Return the values of a partition."""
        return self.partitions.setdefault(number, [])

    def has(self, partition: int, offset: int, values: Sequence[bytes]) -> bool:
        """Whether these values are at an offset."""
        return self.partition(partition)[offset : offset + len(values)] == list(values)


def read_table(root: Path, log: Log) -> Any:
    """Return a topic's table, read without the product's code."""
    table = deltalake.DeltaTable(str(root / "topic_records" / log.table))
    return table.to_pyarrow_table(columns=["partition", "offset", "value"])


def take_removal(world: World, root: Path, log: Log, writer: Process) -> None:
    """Check the records that were removed from a topic's table against its retention."""
    rows = read_table(root, log)
    limit = RETENTION_MS.get(log.topic)
    now_ms = writer.clock.wall_ms(world.now)
    for number, values in log.partitions.items():
        part = rows.filter(pc.equal(rows.column("partition"), number))
        start = pc.min(part.column("offset")).as_py()
        start = len(values) if start is None else start
        gone = log.times.get(number, [])[log.start(number) : start]
        world.check(KEPT)
        if gone and (limit is None or max(gone) >= now_ms - limit):
            world.violate(
                KEPT, f"{log.table}-{number} has lost records of {now_ms - max(gone)} ms ago"
            )
        world.note("removed", log.topic, number, start)
        world.count("records removed", len(gone))
        log.starts[number] = max(start, log.start(number))
