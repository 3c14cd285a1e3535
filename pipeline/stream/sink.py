"""The sink: it writes a batch's records, events, rejected requests and responses, in this order.

Each table gets one commit. The order is safe to interrupt: a response is never visible before the
records that it depends on. Exactly one action collects the batch's frame: a second one would run
the stateful function again, and one that does not read every row would leave state uncommitted.

Every commit has the query's id and the batch's number (Delta's `txn`). So a repeated batch or
commit writes only the missing rows. If a table has a batch that neither this process nor the
previous one wrote, this machine or its checkpoint was set back (`BatchWrittenError`).

The driver writes batches of any size, without Spark's writer, which does not check the node's
epoch. On a local disk, Spark's writer also does not check for a concurrent commit of the same
version (`pipeline.session.start`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import (
    STORE_FAILS,
    Appender,
    Epoch,
    RetryBudget,
    TableReplacedError,
    TableWatch,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.stateful import SETTINGS_PROPERTY
from group_coordinator.pipeline.tables import WRITTEN, OffsetsLog, open_table, table_uri
from group_coordinator.schemas.tables import (
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    RESPONSES,
    Table,
    to_arrow,
    to_events,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
    from group_coordinator.pipeline.stream.timer_schedule import TimerWatch


class BatchWrittenError(Failure):
    """A table has a batch of this query that neither this process nor the previous one wrote."""

    def __init__(self, table: str, batch_id: int) -> None:
        super().__init__(
            f"{table} has batch {batch_id} already, and this process did not write it: this "
            "machine or its streaming checkpoint was set back to an earlier state. Start the "
            "coordinator again: it loads the groups from the tables"
        )


log = logging.getLogger(__name__)

_decode = msgspec.msgpack.Decoder(GroupOutput).decode
# The number of rows at which a piece of a batch ends.
_PIECE_ROWS = 50_000


class Sink:
    """The function given to foreachBatch. It keeps the end of the offsets log between batches.

    `planned` is the newest batch that the streaming checkpoint had planned before this run, -1 if
    none; the previous process may have written it. `timers` receives all timers; without it, the
    source begins a batch every interval. Failed commits are retried for `offsets.commit.timeout.ms`
    of `config`.
    """

    def __init__(
        self,
        root: str,
        settings: CoordinatorSettings,
        clock: Callable[[], int] = clock_ms,
        epoch: Epoch | None = None,
        pinned: PinnedSettings | None = None,
        timers: TimerWatch | None = None,
        config: GroupCoordinatorConfig | None = None,
        planned: int = -1,
    ) -> None:
        self.timers = timers
        # The newest batch that this process, or the one before it, may have written to a table.
        self._ours = {table.name: planned for table in WRITTEN}
        self._timeout_ms = (config or GroupCoordinatorConfig()).offsets_commit_timeout_ms
        self._root = root
        self._epoch = epoch
        self._pinned = pinned
        self._appenders = {
            table.name: Appender(
                table_uri(root, table),
                epoch,
                settings.log_flush_enable,
                ends_by_restore=table is OFFSETS_TOPIC,
                is_sink=True,
            )
            for table in WRITTEN
        }
        self._watches = [
            TableWatch(table_uri(root, table), self._appenders[table.name], table is OFFSETS_TOPIC)
            for table in WRITTEN
        ]
        self._log = OffsetsLog(
            open_table(root, OFFSETS_TOPIC),
            settings.segment_bytes,
            settings.segment_ms,
            clock,
        )
        self.batches = 0

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch. A failure ends the query, and the next run repeats the batch."""
        spark = frame.sparkSession
        app_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if app_id is None:
            raise RuntimeError("not in a streaming query: there is no query id to write under")
        if self._pinned is not None:
            spark.sparkContext.setLocalProperty(SETTINGS_PROPERTY, self._pinned.of_batch(batch_id))
        blobs = frame.toArrow().column(0)
        outputs: Iterable[GroupOutput] = (_decode(blob.as_py()) for blob in blobs)
        if self.timers is None:
            self.write(outputs, app_id, batch_id)
        else:
            self.write(self.timers.watch(outputs), app_id, batch_id)
            self.timers.ended(batch_id)
        self.batches += 1

    def check_epoch(self) -> None:
        """Raise FencedError if a newer coordinator has taken over."""
        appender = self._appenders[RESPONSES.name]
        appender.forget()
        if self._epoch is not None:
            self._epoch.check(RESPONSES.name, appender.last_version(self._epoch.app_id))

    def check_same(self) -> None:
        """Raise TableReplacedError if a table was replaced.

        Called by a thread that writes no batches. A table that cannot be read is ignored here,
        because the batches report it.
        """
        for watch in self._watches:
            try:
                watch.check_if_due()
            except TableReplacedError:
                raise
            except STORE_FAILS as error:
                log.debug("%s", error)

    def change(self, batch: BatchSettings, gained: Collection[int]) -> None:
        """Use these settings from the next batch on. Called by a thread that writes no batches.

        `gained` are newly claimed offsets partitions: the end of their log is read again, because
        the former owner has appended to it.
        """
        if gained:
            self._log.reread(open_table(self._root, OFFSETS_TOPIC), gained)
        if self._pinned is not None:
            self._pinned.change(batch)
        self.wake()

    def wake(self) -> None:
        """Make a batch begin at once, even without requests."""
        if self.timers is not None:
            self.timers.wake()

    def is_changed(self) -> bool:
        """Return whether a batch has begun with the settings of the last `change`."""
        return self._pinned is None or self._pinned.is_changed()

    def write(self, outputs: Iterable[GroupOutput], app_id: str, batch_id: int) -> None:
        """Write the outputs of the groups; skip each table that already has this batch.

        A table may have it if this process or the previous one tried to write it; otherwise raises
        BatchWrittenError. Raises CommitTimeoutError if a table does not accept its rows in time,
        FencedError and NotFlushed.
        """
        tables = self._to_rows(outputs)
        # In an object store, a file takes as long as a commit. So all files are written at once,
        # before the commits.
        if len(tables) > 1:
            for table, rows in tables:
                self._appenders[table.name].write_ahead(rows)
        budget = RetryBudget(self._timeout_ms)
        for table, rows in tables:
            append = partial(self._append, table, rows, app_id, batch_id)
            if not budget.run(f"write {table.name}", append):
                raise BatchWrittenError(table.name, batch_id)

    def _append(self, table: Table, rows: pa.Table, app_id: str, batch_id: int) -> bool:
        """Append a table's rows of a batch; return False if another process wrote the batch."""
        appender = self._appenders[table.name]
        try:
            written = appender.append(rows, app_id, batch_id)
        finally:
            if appender.may_be_committed:
                self._ours[table.name] = batch_id
        if not written and batch_id > self._ours[table.name]:
            # The batch is already planned. A later batch in the table makes the next start treat
            # the streaming checkpoint as outdated, so it does not repeat the batch.
            appender.append(None, app_id, batch_id + 1)
            return False
        if table is not OFFSETS_TOPIC:
            return True
        if written:
            self._log.advance(rows)
        else:
            # A failed attempt may have been written: the next records come after its records.
            partitions = rows.column("partition").unique().to_pylist()
            self._log.reread(open_table(self._root, OFFSETS_TOPIC), partitions)
        return True

    def _to_rows(self, outputs: Iterable[GroupOutput]) -> list[tuple[Table, pa.Table]]:
        """Return the rows of each non-empty table, in the order in which they must be written.

        Outputs are converted to Arrow piece by piece, because a large batch takes several times the
        memory as Python objects.
        """
        upcoming: dict[int, int] = {}
        found: dict[str, list[pa.Table]] = {table.name: [] for table in WRITTEN}
        for piece in _pieces(outputs):
            if piece.records:
                found[OFFSETS_TOPIC.name].append(self._log.place(piece.records, upcoming))
            if piece.events:
                found[GROUP_EVENTS.name].append(to_events(piece.events))
            if piece.rejected:
                found[REJECTED_REQUESTS.name].append(to_arrow(REJECTED_REQUESTS, piece.rejected))
            if piece.responses:
                found[RESPONSES.name].append(to_arrow(RESPONSES, piece.responses))
        return [
            (table, pa.concat_tables(found[table.name])) for table in WRITTEN if found[table.name]
        ]


def _pieces(outputs: Iterable[GroupOutput]) -> Iterator[GroupOutput]:
    """Join outputs into pieces of about `_PIECE_ROWS` rows.

    A group's output is not split, because its events are numbered within a piece.
    """
    piece = GroupOutput([], [], [], [])
    rows = 0
    for output in outputs:
        piece.responses += output.responses
        piece.records += output.records
        piece.events += output.events
        piece.rejected += output.rejected
        rows += len(output.responses) + len(output.records)
        rows += len(output.events) + len(output.rejected)
        if rows >= _PIECE_ROWS:
            yield piece
            piece = GroupOutput([], [], [], [])
            rows = 0
    if rows:
        yield piece
