"""A coordinator without Spark: the stream's source, its function of a group, and its sink."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
from msgspec import Struct

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.event_source import EventReader
from group_coordinator.pipeline.stream.event_tables import SourceOptions
from group_coordinator.pipeline.stream.packed_events import unpack
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.stream.stateful import GroupFunction
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS
from tests.trials.malformed.debts import TrialFailed

if TYPE_CHECKING:
    from group_coordinator.pipeline.session.arrow_groups import ArrowGroupState

# One batch in so many is read a second time.
_REPLAY_EVERY = 4
# The last time that a timer of Spark's can have.
_LAST_MS = 2**63 - 1

_decode = msgspec.msgpack.Decoder(GroupOutput).decode


class _GroupState(Struct):
    """The state of a group in a batch, with the methods of Spark's GroupState that are used."""

    stored: bytes | None
    now: int
    hasTimedOut: bool
    timeout_ms: int | None = None

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def get(self) -> tuple[bytes | None]:
        return (self.stored,)

    def getCurrentProcessingTimeMs(self) -> int:
        return self.now

    def update(self, value: tuple[bytes]) -> None:
        (self.stored,) = value
        self.timeout_ms = None

    def remove(self) -> None:
        self.stored = self.timeout_ms = None

    def setTimeoutDuration(self, duration_ms: int) -> None:
        if not 0 < duration_ms <= _LAST_MS - self.now:
            raise ValueError(f"Spark has no timer {duration_ms} ms from {self.now}")
        self.timeout_ms = duration_ms


class Answering:
    """A coordinator that processes the requests of a root batch by batch, at given times.

    `settings` are Kafka's broker settings, under their names. The groups' states are kept in
    memory, as in Spark's state store "memory".
    """

    def __init__(self, root: str, scratch: Path, settings: Mapping[str, Any]) -> None:
        self._root = root
        self._bootstrap = str(scratch / "bootstrap")
        config = parse_config(settings)
        self._function = GroupFunction(lambda: BatchMachine(BatchSettings(config=config)))
        self._states: dict[str | None, bytes] = {}
        self._timeouts: dict[str | None, int] = {}
        self.batches = 0
        self.start()

    def start(self) -> None:
        """Start without a streaming checkpoint, from the tables only."""
        self._states.clear()
        self._timeouts.clear()
        settings = CoordinatorSettings()
        bootstrap = prepare_bootstrap(self._root, self._bootstrap)
        self._reader = EventReader(
            SourceOptions(
                requests=table_uri(self._root, REQUESTS),
                bootstrap=bootstrap.uri,
                bootstrap_version=bootstrap.version,
                bootstrap_end=open_delta(bootstrap.uri).version() + 1,
                first_version=bootstrap.first_version,
                wait_ms=0,
                max_files=settings.max_files_per_trigger,
                max_bytes=settings.max_bytes_per_trigger,
                max_request_bytes=settings.max_request_size,
            )
        )
        self._at = self._reader.initialOffset()
        self._sink = Sink(self._root, settings)

    def answer(self, now: int) -> bool:
        """Run one batch at `now` (ms); False if there was no request, and so only timers.

        Raises TrialFailed if a batch would have other events when it is run again; only some are
        read twice.
        """
        found, end = self._reader.read(self._at)
        events = _by_group(found)
        if self.batches % _REPLAY_EVERY == 0:
            replayed = _by_group(self._reader.readBetweenOffsets(self._at, end))
            for group_id in events.keys() | replayed.keys():
                if unpack(events.get(group_id, [])) != unpack(replayed.get(group_id, [])):
                    raise TrialFailed(f"batch {self.batches} is another one when it is run again")
            del replayed
        due = [group for group, at in self._timeouts.items() if at < now and group not in events]
        outputs = [self._decide(group, texts, now, False) for group, texts in events.items()]
        outputs += [self._decide(group, [], now, True) for group in due]
        self._sink.write([_decode(one) for one in outputs if one is not None], "q", self.batches)
        self.batches += 1
        progressed = end != self._at
        self._at = end
        return progressed

    def close(self) -> None:
        """Undo the freezing of the garbage collector that the function does in a worker."""
        gc.unfreeze()

    def has_timer(self, group_id: str) -> bool:
        """Whether the group has a timer."""
        return group_id in self._timeouts

    def _decide(
        self, group_id: str | None, events: list[str], now: int, timed_out: bool
    ) -> bytes | None:
        state = _GroupState(self._states.get(group_id), now, timed_out)
        output = self._function.decide(group_id, events, cast("ArrowGroupState", state))
        if state.stored is None:
            self._states.pop(group_id, None)
        else:
            self._states[group_id] = state.stored
        if state.timeout_ms is not None:
            self._timeouts[group_id] = now + state.timeout_ms
        elif timed_out or state.stored is None:
            self._timeouts.pop(group_id, None)
        return output


def _by_group(batches: Iterable[pa.RecordBatch]) -> dict[str | None, list[str]]:
    """Return the rows of each group, as the stream passes them to its function."""
    events: dict[str | None, list[str]] = {}
    for batch in batches:
        # The JVM fails to read an invalid batch.
        batch.validate(full=True)
        for row in batch.to_pylist():
            events.setdefault(row["group_id"], []).append(row["events"])
    return events
