"""A user's table that is a topic; its owner appends rows, optimizes and vacuums.

The Rust code writes, so each of these is one step of the world, and none fails. The names of its
files and the times of its commits come from the machine and not from the seed; no decision of a run
depends on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
from kafka.partitioner.default import murmur2

from group_coordinator.pipeline.topics import create_table_topic
from tests.trials.gateways.log import Log

if TYPE_CHECKING:
    from tests.trials.gateways.ledger import Ledger
    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import Actor, World

_MOST_ROWS = 60
_OPTIMIZE = 0.15
_VACUUM = 0.2
# Rewritten files are kept for so long, ms of true time: a week, in a run of a minute.
_KEPT_MS = 500.0
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
        # The files of the table; the ends of the partitions of each file of rows; and the times at
        # which files were rewritten, ms of true time.
        self._files_there: set[str] = set()
        self._ends: dict[str, dict[int, int]] = {}
        self._rewritten: dict[str, float] = {}
        self._root, self._topic = str(root), topic
        self._log = Log(topic, topic)
        self._ledger = ledger
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
            drawn = self._chance.random()
            if drawn < _OPTIMIZE:
                self._optimize()
            elif drawn < _OPTIMIZE + _VACUUM:
                self._vacuum()
            else:
                self._append()
        self._world.later(self._chance.uniform(50, 600), self._actor, self._step)

    def _optimize(self) -> None:
        deltalake.DeltaTable(self._table).optimize.compact()
        self._world.count("tables optimized")
        gone = self._files_there - self._present()
        self._rewritten |= dict.fromkeys(gone, self._world.now)

    def _vacuum(self) -> None:
        """Delete the rewritten files once all are old and indexed: they are not indexed later."""
        due = self._world.now - _KEPT_MS
        rows = self._rewritten.keys() & self._ends.keys()
        if any(at > due for at in self._rewritten.values()) or not rows <= self._ledger.indexed:
            return
        deltalake.DeltaTable(self._table).vacuum(0, dry_run=False, enforce_retention_duration=False)
        for file in sorted(rows):
            for partition, end in self._ends.pop(file).items():
                self._log.starts[partition] = max(end, self._log.start(partition))
        self._world.count("users' files vacuumed", len(self._rewritten))
        self._rewritten.clear()

    def _present(self) -> set[str]:
        """Return the files of the table's newest version."""
        self._files_there = set(deltalake.DeltaTable(self._table).file_uris())
        self._files_there = {uri.rpartition("/")[2] for uri in self._files_there}
        return self._files_there

    def _append(self) -> None:
        keys, values = [], []
        placed = set()
        for _ in range(self._chance.randint(1, _MOST_ROWS)):
            key, value = f"key-{self._chance.randrange(_KEYS)}", f"row-{self._number}"
            self._number += 1
            keys.append(key)
            values.append(value)
            # As Kafka's own partitioner places them.
            partition = (murmur2(key.encode()) & 0x7FFFFFFF) % self.partitions
            self._log.partition(partition).append(value.encode())
            placed.add(partition)
        rows = pa.table({"key": keys, "value": values})
        deltalake.write_deltalake(self._table, rows, mode="append")
        self._world.count("rows of users", len(values))
        before = self._files_there
        ends = {number: len(self._log.partition(number)) for number in placed}
        self._ends |= dict.fromkeys(self._present() - before, ends)
