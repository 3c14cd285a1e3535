"""The batches of commits: the process that ran each, and the time at which it read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.trials.simulation.engine import PlannedBatch

# A batch of a query: the query's id and the batch's number.
Batch = tuple[str, int]


class Reading(NamedTuple):
    """The time at which a batch read requests: true ms, and ms of its query's batch times.

    `elapsed_ms` is the sum of forward steps of the query's batch times until then.
    """

    at: float
    time_ms: int
    elapsed_ms: int


class Batches:
    """The batches that the engine has planned."""

    def __init__(self) -> None:
        self._writers: dict[str, tuple[str, int]] = {}
        self._readings: dict[Batch, Reading] = {}

    def begun(self, query_id: str, process: str, node_id: int) -> None:
        """Learn which process a query writes for."""
        self._writers[query_id] = (process, node_id)

    def planned(self, query_id: str, batch: PlannedBatch, read_at: float) -> None:
        """Learn when a batch looked for requests, true ms."""
        before = self._readings.get((query_id, batch.batch_id - 1))
        elapsed = 0
        if before is not None:
            elapsed = before.elapsed_ms + max(0, batch.time_ms - before.time_ms)
        self._readings[query_id, batch.batch_id] = Reading(read_at, batch.time_ms, elapsed)

    def of_transactions(self, transactions: Mapping[str, int]) -> Batch | None:
        """Return the batch of a commit, by the commit's transactions; None if there is none."""
        for app_id, version in transactions.items():
            if app_id in self._writers:
                return app_id, version
        return None

    def writer_of(self, batch: Batch) -> tuple[str, int]:
        """Return the process that ran a batch, and its node."""
        return self._writers[batch[0]]

    def reading_of(self, batch: Batch) -> Reading:
        """Return the time at which a batch read requests."""
        return self._readings[batch]
