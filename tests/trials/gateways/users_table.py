"""A user's table that is a topic: its owner appends rows with delta-rs and optimizes it.

It is Rust that writes: an append or an OPTIMIZE is one step of the world, and none of them fails.
Names of its files, and the times of its commits, are those of the machine and not of the seed;
nothing of what a run decides follows from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
from kafka.partitioner.default import murmur2

from group_coordinator.pipeline.topics import create_table_topic
from tests.trials.gateways.ledger import Log

if TYPE_CHECKING:
    from tests.trials.gateways.ledger import Ledger
    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import Actor, World

_MOST_ROWS = 60
_OPTIMIZE = 0.1
_KEYS = 40


class UsersTable:
    """The table, and the log that its rows have to become."""

    def __init__(
        self, world: World, files: Files, ledger: Ledger, actor: Actor, root: Path, topic: str
    ) -> None:
        self.is_quiet = False
        self.partitions = 3
        self._world = world
        self._files = files
        self._actor = actor
        self._chance = world.rng("user")
        self._table = str(root / topic)
        self._number = 0
        self._root, self._topic = str(root), topic
        self._log = Log(topic, topic)
        ledger.logs[topic] = [self._log]

    def begin(self) -> None:
        """Make the table, the topic, and the first rows; a step of the actor's."""
        with self._files.ours():
            self._append()
            create_table_topic(
                self._root, self._topic, self.partitions, self._table, key="key", value="value"
            )
        self._world.later(100.0, self._actor, self._step)

    def _step(self) -> None:
        if self.is_quiet:
            return
        with self._files.ours():
            if self._chance.random() < _OPTIMIZE:
                deltalake.DeltaTable(self._table).optimize.compact()
                self._world.count("tables optimized")
            else:
                self._append()
        self._world.later(self._chance.uniform(50, 600), self._actor, self._step)

    def _append(self) -> None:
        keys, values = [], []
        for _ in range(self._chance.randint(1, _MOST_ROWS)):
            key, value = f"key-{self._chance.randrange(_KEYS)}", f"row-{self._number}"
            self._number += 1
            keys.append(key)
            values.append(value)
            # As Kafka's own partitioner places them.
            partition = (murmur2(key.encode()) & 0x7FFFFFFF) % self.partitions
            self._log.partition(partition).append(value.encode())
        rows = pa.table({"key": keys, "value": values})
        deltalake.write_deltalake(self._table, rows, mode="append")
        self._world.count("rows of users", len(values))
