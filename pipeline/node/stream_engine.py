"""The interface between a coordinator node and the engine that runs its streaming query.

`pipeline.stream.spark_engine.SparkEngine` implements it on Spark; a simulation runs the node on an
engine without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.stream.offset import Bootstrap, Planned, Selection


class RunningQuery(Protocol):
    """A streaming query that decides for a node's partitions.

    `run` is the number of this run; a `pipeline.stream.offset.SelectionChange` names its run.
    """

    run: int

    def is_ready(self) -> bool:
        """Whether the query has read all events that load its groups (see `expect`)."""
        ...

    def change(self, batch: BatchSettings, gained: Collection[int]) -> None:
        """Decide by these settings from the next batch on; `gained` are newly claimed partitions.

        A partition in both `claims` and `unloading` is decided for until a batch no longer selects
        its requests. The former owners of `gained` must already be fenced.
        """
        ...

    def is_changed(self) -> bool:
        """Whether a batch with the settings of the last `change` has begun."""
        ...

    def expect(self, version: int) -> None:
        """Make `is_ready` false until the query has read the bootstrap's versions before this one.

        The bootstrap is the table of events that load and unload the node's groups.
        """
        ...

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Wait for `is_ready`. Raises Failure if the query ends, or if no batch ends in time."""
        ...

    def check(self) -> None:
        """Raise Failure if the query has failed, FencedError if another process has fenced it."""
        ...

    def progress(self) -> int:
        """Return how many batches have ended.

        At least one batch, possibly empty, ends in `trigger.max.interval.ms` plus its duration.
        """
        ...

    def consumed(self) -> int | None:
        """Return the first version of `requests` that a restart may read; None if unknown."""
        ...

    def trim(self, version: int) -> int:
        """Delete the log of `requests` before a version; return the number of deleted files."""
        ...

    def stop(self) -> None:
        """Stop the query, between two batches if one ends soon; no error if it has ended."""
        ...

    def abandon(self) -> None:
        """Stop the query at once; no part of it runs afterwards."""
        ...


class StreamEngine(Protocol):
    """A factory of streaming queries; it also manages the files of their checkpoints."""

    def last_planned(self, checkpoint: str) -> Planned | None:
        """Return the last batch that a streaming checkpoint has planned, None if there is none."""
        ...

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint, or a folder that contains one, if it exists.

        It disappears from its path at once, even if deleting its files takes longer.
        """
        ...

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder, and the streaming checkpoint in it, atomically.

        Returns False if the folder is missing, or if the store has no atomic rename of folders.
        """
        ...

    def begin(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        selection: Selection,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> RunningQuery:
        """Start a query after the last batch that its streaming checkpoint has planned.

        If `planned` is None, the checkpoint is new, and the query begins with the bootstrap.
        `selection` names the partitions that it reads at first, and `batch` the settings of the
        next batch. A planned batch keeps the settings with which it was planned
        (`pipeline.stream.pinned_settings`). All writes are made under `epoch`.
        """
        ...
