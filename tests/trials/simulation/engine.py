"""A simulation of Spark's part of a node: micro-batches that are planned, run, and committed.

It follows Spark's rules. The offsets and the time of a batch are in the offset log before it runs.
It runs on the state after the previous batch. Its state and its entry in the commit log exist after
the sink is done. So an interrupted batch is run again with the same offsets and the same time. The
source, the stateful function and the sink are the product's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import FencedError
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream import stateful
from group_coordinator.pipeline.stream.event_source import EventReader, Search, source_options
from group_coordinator.pipeline.stream.event_tables import EventsGoneError, SourceOptions
from group_coordinator.pipeline.stream.offset import Planned, Selection
from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.stream.spark_engine import SparkQuery
from group_coordinator.pipeline.stream.stateful import SETTINGS_PROPERTY, GroupFunction
from group_coordinator.pipeline.stream.timer_schedule import NEVER_MS, TimerWatch, restored_schedule
from tests.trials.simulation.files import replaced
from tests.trials.simulation.world import Actor

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.batch import BatchSettings
    from group_coordinator.coordinator.ownership import ClusterState
    from group_coordinator.pipeline.delta.appender import Epoch
    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.pipeline.stream.offset import Bootstrap
    from group_coordinator.pipeline.stream.stateful import MachineFactory
    from group_coordinator.pipeline.stream.timer_schedule import TimerSchedule
    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import Process, World

PLANNED = "batch planned"
DECIDED = "batch decided"
WRITTEN = "batch written"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
# The interval at which a query polls for requests, ms, and Spark's overhead of a batch. A wait is
# divided into polls, because a sleeping wait would block the steps of other actors.
_LOOK_MS = 40.0
_BATCH_OVERHEAD_MS = 300.0


class ConcurrentUpdate(RuntimeError):
    """Two queries on one streaming checkpoint: Spark refuses the later one's entry in a log."""


# Errors that may end a query; any other error is a bug.
EXPECTED = (Failure, OSError, ConcurrentUpdate, EventsGoneError)


class Stored(Struct, frozen=True):
    """A group's state between batches, and when it times out, ms; null is never."""

    state: bytes
    timeout_at: int | None


class PlannedBatch(Struct):
    """A batch of the offset log: where it begins and ends, and its time."""

    batch_id: int
    start: dict[str, Any]
    end: dict[str, Any]
    time_ms: int


class StreamingCheckpoint:
    """The files of a query on disk: its id, the offset log, the commit log, and the groups."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id
        self.latest: PlannedBatch | None = None
        self.committed = -1
        self.text: str | None = None
        self._groups: dict[str | None, Stored] = {}

    def keep(self, text: str) -> None:
        """Keep a text of a run's own."""
        self.text = text

    def plan(self, batch: PlannedBatch) -> None:
        """Add a batch to the offset log; raises ConcurrentUpdate."""
        if self.latest is not None and self.latest.batch_id >= batch.batch_id:
            raise ConcurrentUpdate(f"batch {batch.batch_id} is planned already")
        self.latest = batch

    def offset_of(self, batch_id: int) -> str:
        """Return the end offset of a planned batch."""
        assert self.latest is not None
        assert self.latest.batch_id == batch_id
        return msgspec.json.encode(self.latest.end).decode()

    def time_of(self, batch_id: int) -> int:
        """Return the time of a planned batch, ms."""
        assert self.latest is not None
        assert self.latest.batch_id == batch_id
        return self.latest.time_ms

    def commit(self, batch: PlannedBatch, groups: dict[str | None, Stored]) -> None:
        """Keep the state after a batch, and add it to the commit log; raises ConcurrentUpdate."""
        if self.committed >= batch.batch_id:
            raise ConcurrentUpdate(f"batch {batch.batch_id} is committed already")
        self.committed = batch.batch_id
        self._groups = groups

    def groups(self) -> dict[str | None, Stored]:
        """Return a copy of the groups after the last committed batch."""
        return dict(self._groups)


class _State:
    """A group's state within a call, as Spark's GroupState has it."""

    def __init__(self, stored: Stored | None, now: int, timed_out: bool) -> None:
        self.stored = stored
        self.hasTimedOut = timed_out
        self._now = now

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.stored is not None
        return (self.stored.state,)

    def getCurrentProcessingTimeMs(self) -> int:
        return self._now

    def remove(self) -> None:
        self.stored = None

    def update(self, value: tuple[bytes]) -> None:
        self.stored = Stored(value[0], None)

    def setTimeoutDuration(self, duration_ms: int) -> None:
        assert self.stored is not None
        self.stored = Stored(self.stored.state, self._now + duration_ms)


class _Frame:
    """The parts of a batch's DataFrame, its session and its context that the sink uses."""

    def __init__(
        self,
        query_id: str,
        events: Iterator[pa.RecordBatch],
        decide: Callable[[list[pa.RecordBatch]], list[bytes]],
        decided: Callable[[], None],
    ) -> None:
        self._properties = {QUERY_ID_PROPERTY: query_id}
        self._events = events
        self._decide = decide
        self._decided = decided
        self.sparkSession = self
        self.sparkContext = self

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def setLocalProperty(self, name: str, value: str) -> None:
        self._properties[name] = value

    def toArrow(self) -> pa.Table:
        settings = self.getLocalProperty(SETTINGS_PROPERTY)
        pieces = list(self._events)
        # No other actor runs in this block.
        with replaced(stateful, "_settings_of_batch", lambda: settings):
            outputs = self._decide(pieces)
        self._decided()
        return pa.table({"output": pa.array(outputs, pa.binary())})


class Listener(Protocol):
    """A listener to queries and their batches; `cluster` has the owners of partitions."""

    cluster: ClusterState

    def on_query(self, query_id: str, process: Process, epoch: Epoch) -> None:
        """Handle the start of a query by a node's process in its epoch."""
        ...

    def on_planned(self, query_id: str, batch: PlannedBatch, read_at: float) -> None:
        """Handle a planned batch; it has the requests that existed at a true time, ms."""
        ...

    def on_decided(
        self, query_id: str, planned: PlannedBatch, outputs: dict[str | None, bytes]
    ) -> None:
        """Handle the decisions of a batch, by group, before any of its writes."""
        ...


class SimulatedQuery:
    """A streaming query: an actor of its node's process that runs one batch after the other."""

    def __init__(
        self,
        engine: SimulatedEngine,
        where: str,
        checkpoint: StreamingCheckpoint,
        wanted: SourceOptions,
        make_machine: MachineFactory,
        sink: Sink,
        looks: TimerSchedule,
    ) -> None:
        self.isActive = True
        self.lastProgress: dict[str, Any] | None = None
        self._engine = engine
        self._world = engine.world
        self._where = where
        self._checkpoint = checkpoint
        self._reader = EventReader(wanted)
        self._function = GroupFunction(make_machine)
        self._sink = sink
        self._looks = looks
        self._interval_ms = wanted.wait_ms
        self._search: Search | None = None
        self._error: Exception | None = None
        self._actor = Actor(engine.process, "query")
        self._world.later(_LOOK_MS, self._actor, self._step)

    def stop(self) -> None:
        """Stop at once; a batch under way does nothing more."""
        self.isActive = False
        self._actor.stopped = True

    def exception(self) -> Exception | None:
        """Return the error that ended the query, None if there was none."""
        return self._error

    # --- batches ----------------------------------------------------------------------------------

    def _step(self) -> None:
        failed_before, began = self._actor.failed_reads, self._world.now
        try:
            batch = self._next_batch()
            if batch is not None:
                self._run(*batch)
        # As in Spark: an error of a batch ends its query, and the node finds it ended.
        except Exception as error:
            disturbed = self._engine.files.is_disturbed(began)
            if self._actor.failed_reads == failed_before and not disturbed:
                self._check_expected(error)
            self._end(error)
            return
        delay = _LOOK_MS if batch is None else _BATCH_OVERHEAD_MS
        self._world.later(delay, self._actor, self._step)

    def _check_expected(self, error: Exception) -> None:
        """Raise the error of a batch without failed reads, unless it is expected."""
        if isinstance(error, EventsGoneError) and not self._is_fenced():
            if self._engine.files.was_vacuumed(error):
                # As the error says; the reader lagged further than the tables keep files.
                self._engine.delete_checkpoint(self._where)
            elif self._engine.owns_partitions():
                raise error
            # The log is not retained for a node that owns nothing and is paused past its lease; its
            # next start begins without a checkpoint.
        elif isinstance(error, TableNotFoundError):
            if not self._is_fenced():
                raise error
        elif isinstance(error, FileNotFoundError) or not isinstance(error, EXPECTED):
            raise error

    def _end(self, error: Exception) -> None:
        self._world.tell(f"the query ended: {type(error).__name__}: {error}")
        self._world.count(f"queries ended: {type(error).__name__}")
        self._error = error
        self.isActive = False

    def _is_fenced(self) -> bool:
        """Whether a later start of the node took this one's folder, with the bootstrap in it."""
        with self._engine.files.ours():
            try:
                self._sink.check_epoch()
            except FencedError:
                return True
        return False

    def _check_taken(self) -> None:
        """Raise ConcurrentUpdate if a later start has taken the folder."""
        if not self._engine.has(self._where, self._checkpoint):
            raise ConcurrentUpdate("another start has taken the streaming checkpoint")

    def _next_batch(self) -> tuple[PlannedBatch, Iterator[pa.RecordBatch]] | None:
        """Return the next batch and its events; None if none is due.

        Without events there is a batch for the timers, as in Spark, but not as the first batch.
        """
        self._check_taken()
        checkpoint, latest = self._checkpoint, self._checkpoint.latest
        if latest is not None and checkpoint.committed < latest.batch_id:
            self._world.tell(f"batch {latest.batch_id} is run again")
            self._world.count("batches run again")
            if latest.batch_id == 0:
                # As in Spark: its offset log has only the ends of batches.
                latest.start = self._reader.initialOffset()
            return latest, self._reader.readBetweenOffsets(latest.start, latest.end)
        start = self._reader.initialOffset() if latest is None else latest.end
        if self._search is None:
            self._search = self._reader.search(start)
        read_at = self._world.now
        found = self._search.poll()
        if found is None:
            return None
        self._search = None
        events, end = found
        if end == start and latest is None:
            return None
        number = 0 if latest is None else latest.batch_id + 1
        batch = PlannedBatch(number, start, end, clock_ms())
        self._check_taken()
        checkpoint.plan(batch)
        self._world.tell(f"batch {number} is planned: {_told(start)} to {_told(end)}")
        self._engine.listener.on_planned(self._checkpoint.query_id, batch, read_at)
        self._engine.files.point(PLANNED)
        return batch, events

    def _run(self, batch: PlannedBatch, events: Iterator[pa.RecordBatch]) -> None:
        groups = self._checkpoint.groups()
        files = self._engine.files
        frame = _Frame(
            self._checkpoint.query_id,
            events,
            lambda pieces: self._decide(batch, pieces, groups),
            lambda: files.point(DECIDED),
        )
        self._sink(frame, batch.batch_id)  # type: ignore[arg-type]
        files.point(WRITTEN)
        self._check_taken()
        self._checkpoint.commit(batch, groups)
        self._check_looks(groups)
        self._world.count("batches")
        source = {"startOffset": batch.start, "endOffset": batch.end}
        self.lastProgress = {"batchId": batch.batch_id, "sources": [source]}

    def _check_looks(self, groups: dict[str | None, Stored]) -> None:
        """Raise RuntimeError unless a batch is due for each timer as soon as promised.

        `pipeline.stream.timer_schedule` defines that time.
        """
        timers = [each.timeout_at for each in groups.values() if each.timeout_at is not None]
        due = min(timers, default=NEVER_MS) + 1
        if self._looks.next_ms() >= due + self._interval_ms:
            raise RuntimeError(
                f"a timer is due at {due}, the next look is at {self._looks.next_ms()}"
            )

    def _decide(
        self,
        batch: PlannedBatch,
        pieces: list[pa.RecordBatch],
        groups: dict[str | None, Stored],
    ) -> list[bytes]:
        """Call the stateful function for each group with events, then for those that timed out."""
        self._check_taken()
        rows: dict[str | None, list[str]] = {}
        for piece in pieces:
            names, texts = piece.column(0).to_pylist(), piece.column(1).to_pylist()
            for name, text in zip(names, texts, strict=True):
                rows.setdefault(name, []).append(text)
        late = [
            name
            for name, stored in groups.items()
            if stored.timeout_at is not None
            and stored.timeout_at < batch.time_ms
            and name not in rows
        ]
        outputs: dict[str | None, bytes] = {}
        for name in [*_sorted(rows), *_sorted(late)]:
            timed_out = name not in rows
            state = _State(groups.get(name), batch.time_ms, timed_out)
            output = self._function.decide(name, rows.get(name, []), state)  # type: ignore[arg-type]
            if state.stored is None:
                groups.pop(name, None)
            else:
                groups[name] = state.stored
            if output is not None:
                outputs[name] = output
        self._engine.listener.on_decided(self._checkpoint.query_id, batch, outputs)
        return list(outputs.values())


class SimulatedEngine:
    """Spark for one process of a node; see `pipeline.node.stream_engine.StreamEngine`.

    `checkpoints` are the streaming checkpoints on disk, by path. `listener` gets the events of each
    batch.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        files: Files,
        root: str,
        settings: CoordinatorSettings,
        checkpoints: dict[str, StreamingCheckpoint],
        listener: Listener,
    ) -> None:
        self.world = world
        self.process = process
        self.files = files
        self.listener = listener
        self._root = root
        self._settings = settings
        self._checkpoints = checkpoints

    def has(self, checkpoint: str, content: StreamingCheckpoint) -> bool:
        """Whether a streaming checkpoint is still where it was."""
        return self._checkpoints.get(checkpoint) is content

    def owns_partitions(self) -> bool:
        """Whether the node owns any partition."""
        return bool(self.listener.cluster.owned_by(self._settings.node_id))

    def last_planned(self, checkpoint: str) -> Planned | None:
        """Return the last planned batch of a streaming checkpoint; None if there is none."""
        found = self._checkpoints.get(checkpoint)
        if found is None or found.latest is None:
            return None
        latest = found.latest.batch_id
        return Planned(latest, found.offset_of(latest), found.query_id)

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a streaming checkpoint or the folder of one, if it is there."""
        for each in self._below(checkpoint):
            del self._checkpoints[each]
        shutil.rmtree(checkpoint, ignore_errors=True)

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder at once, with the streaming checkpoint in it."""
        if not Path(folder).exists():
            return False
        self.delete_checkpoint(target)
        Path(folder).rename(target)
        for each in self._below(folder):
            self._checkpoints[target + each.removeprefix(folder)] = self._checkpoints.pop(each)
        return True

    def _below(self, folder: str) -> list[str]:
        return [each for each in self._checkpoints if f"{each}/".startswith(f"{folder}/")]

    def begin(
        self,
        checkpoint: str,
        planned: Planned | None,
        bootstrap: Bootstrap,
        selection: Selection,
        batch: BatchSettings,
        epoch: Epoch,
    ) -> SparkQuery:
        """Begin a query; see `pipeline.node.stream_engine.StreamEngine.begin`."""
        kept = self._checkpoints.get(checkpoint)
        if kept is None:
            kept = StreamingCheckpoint(str(self.files.new_name()))
            self._checkpoints[checkpoint] = kept
        self.listener.on_query(kept.query_id, self.process, epoch)
        pinned = PinnedSettings(self._root, checkpoint, batch, planned, epoch, kept.offset_of)
        looks = restored_schedule(
            planned, kept.text, self._settings.trigger_interval_ms, clock_ms()
        )
        timers = TimerWatch(looks, kept.time_of, kept.keep)
        sink = Sink(
            self._root,
            self._settings,
            epoch=epoch,
            pinned=pinned,
            timers=timers,
            planned=-1 if planned is None else planned.batch_id,
        )
        bootstrap_end = open_delta(bootstrap.uri).version() + 1
        wanted = source_options(
            self._root,
            self._settings,
            bootstrap,
            bootstrap_end,
            selection,
            pinned.run,
            timers.path,
        )
        query: Any = SimulatedQuery(self, checkpoint, kept, wanted, BatchMachine, sink, looks)
        return SparkQuery(lambda: query, sink, self._root, bootstrap_end, pinned.run)


def _told(offset: dict[str, Any]) -> str:
    """Return an offset as logged: versions, and row groups within them."""
    bootstrap, requests = offset["bootstrap"], offset["requests"]
    return f"bootstrap {bootstrap[0]}.{bootstrap[1]} requests {requests[0]}.{requests[1]}"


def _sorted(names: Any) -> list[str | None]:
    return sorted(names, key=lambda name: (name is not None, name or ""))
