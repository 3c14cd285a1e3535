"""An engine whose queries decide nothing: for the story of a node, not of its groups."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.pipeline.delta.appender import Epoch
from group_coordinator.pipeline.delta.tail import Position
from group_coordinator.pipeline.stream.offset import Bootstrap, Offset, Planned, Selection


class FakeQuery:
    """A query that ends a batch whenever it is asked how it gets on; it is ready at once."""

    def __init__(self, run: int, selection: Selection, batch: BatchSettings) -> None:
        self.run = run
        self.changes: list[BatchSettings] = []
        self.selection = selection
        self.batch = batch
        self.hangs = False
        self.ready = True
        self.stopped = False
        self._batches = 0

    def is_ready(self) -> bool:
        return self.ready

    def change(self, batch: BatchSettings, _gained: Collection[int]) -> None:
        self.changes.append(batch)

    def is_changed(self) -> bool:
        return True

    def expect(self, _version: int) -> None:
        pass

    def await_ready(self, _timeout_s: float = 120.0) -> None:
        pass

    def check(self) -> None:
        pass

    def progress(self) -> int:
        self._batches += not self.hangs
        return self._batches

    def consumed(self) -> int | None:
        return None

    def trim(self, _version: int) -> int:
        return 0

    def stop(self) -> None:
        self.stopped = True

    def abandon(self) -> None:
        self.stopped = True


class FakeEngine:
    """Keeps streaming checkpoints in `planned`, by where they are: the last batch of each."""

    def __init__(self, planned: dict[str, Planned] | None = None) -> None:
        self.planned = {} if planned is None else planned
        self.queries: list[FakeQuery] = []
        self.bootstraps: list[Bootstrap] = []
        # The batch after which each query was begun.
        self.gone_on_from: list[Planned | None] = []
        # Whether the queries that are begun from now on end no batch.
        self.hangs = False

    def last_planned(self, checkpoint: str) -> Planned | None:
        return self.planned.get(checkpoint)

    def delete_checkpoint(self, checkpoint: str) -> None:
        for each in self._below(checkpoint):
            del self.planned[each]
        if Path(checkpoint).is_file():
            Path(checkpoint).unlink()
        shutil.rmtree(checkpoint, ignore_errors=True)

    def move(self, folder: str, target: str) -> bool:
        if not Path(folder).exists():
            return False
        Path(folder).rename(target)
        for each in self._below(folder):
            self.planned[target + each.removeprefix(folder)] = self.planned.pop(each)
        return True

    def _below(self, folder: str) -> list[str]:
        return [each for each in self.planned if f"{each}/".startswith(f"{folder}/")]

    def begin(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        selection: Selection,
        batch: BatchSettings,
        _epoch: Epoch,
    ) -> FakeQuery:
        offset = Offset(Position(bootstrap.version), Position(0), len(self.queries), selection)
        self.planned[checkpoint] = Planned(7, msgspec.json.encode(offset).decode(), "query-id")
        self.bootstraps.append(bootstrap)
        self.gone_on_from.append(planned)
        query = FakeQuery(len(self.queries), selection, batch)
        query.hangs = self.hangs
        self.queries.append(query)
        return query
