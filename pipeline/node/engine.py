"""The engine that runs a coordinator node's stream, as far as the node knows it.

`pipeline.stream.spark_engine.SparkEngine` is the one in use. A node knows no more of it than this,
so a simulation can run the node's own code on an engine without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.pipeline.delta.epoch import Epoch
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap
    from group_coordinator.pipeline.stream.offset import Planned, Selection


class RunningQuery(Protocol):
    """A streaming query that decides for a node's partitions.

    `run` is its number: `pipeline.stream.change.SelectionChange` is for one run of the query.
    """

    run: int

    def is_ready(self) -> bool:
        """Whether the query has taken in the bootstrap, as far as it is expected to."""
        ...

    def change(self, batch: BatchSettings, gained: Collection[int]) -> None:
        """Decide by these settings from the next batch on; `gained` are new to the query.

        A partition that is in `claims` and in `unloading` is decided for until a batch no longer
        selects its requests. Nobody else may write for the partitions gained any more.
        """
        ...

    def is_changed(self) -> bool:
        """Whether a batch has begun by the settings of the last `change`."""
        ...

    def expect(self, version: int) -> None:
        """Be ready only once the bootstrap's table is taken in up to before this version."""
        ...

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Return once `is_ready`; raises Failure if the query ends, or no batch comes in time."""
        ...

    def check(self) -> None:
        """Raise Failure if the query has ended by itself, FencedError if others ended it."""
        ...

    def progress(self) -> int:
        """How many batches have ended: a query that runs goes on ending batches, empty ones too.

        One ends at least every `trigger.max.interval.ms`, beside what the batch itself takes.
        """
        ...

    def consumed(self) -> int | None:
        """The version of `requests` that a restart may read again; None if it is not known."""
        ...

    def trim(self, version: int) -> int:
        """Delete the log of `requests` before a version; returns how many files."""
        ...

    def stop(self) -> None:
        """Stop the query, between two batches if one ends soon; no error if it has ended."""
        ...

    def abandon(self) -> None:
        """Stop the query at once; nothing of it runs after that."""
        ...


class StreamEngine(Protocol):
    """Begins queries, and knows the files of their streaming checkpoints."""

    def last_planned(self, checkpoint: str) -> Planned | None:
        """The last batch that a streaming checkpoint has planned.

        None if there is no such checkpoint, or no batch was planned.
        """
        ...

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint or the folder of one, if it is there.

        It is gone at once for whoever looks for it, however long the deletion takes.
        """
        ...

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder at once, with the streaming checkpoint in it.

        False if it is not there, or if the store cannot rename a folder at once.
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
        """Begin a query after the last batch that its streaming checkpoint has planned.

        If `planned` is None, the checkpoint is new, and the query begins with the bootstrap.
        `selection` says whose requests are read at first, and `batch` what a batch is decided by. A
        batch that the streaming checkpoint had planned before keeps what it was planned with
        (`pipeline.stream.pinned_settings`). All writes are made under `epoch`.
        """
        ...
