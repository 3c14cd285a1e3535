"""The stateful function that Spark calls for each group: it decides the group's events and timers.

The state is one `binary` column, and the output is one too: msgpack of a `GroupOutput`. Each column
costs time for each group, and Spark allows no later change of a state's columns.

If the call sets or removes the group's timer, it has an output even without responses, so that the
driver learns the timer (`pipeline.stream.timer_schedule`). One function serves Spark's pandas
frames and `pipeline.session.arrow_groups`.

A call must end with `remove`; with `update` and a new timer; with `update` alone, which clears the
timer; or without a change if the group did not time out. After any other end, Spark calls a group
that timed out again in every batch.
"""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pandas as pd
import pyspark
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupStateTimeout

from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput
from group_coordinator.pipeline.session import arrow_groups
from group_coordinator.pipeline.session.guard import is_known_spark
from group_coordinator.pipeline.stream.packed_events import STREAM_COLUMNS, unpack
from group_coordinator.pipeline.stream.timer_schedule import timer_of, wake_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

    from group_coordinator.coordinator.group.batch import BatchResult
    from group_coordinator.pipeline.session.arrow_groups import ArrowGroupState

# Lower case, because Spark lower-cases a state's schema on its way to Python.
STATE_SCHEMA = "state binary"
OUTPUT_SCHEMA = "output binary"
# The local property of a batch's job that gives its tasks the batch's settings.
SETTINGS_PROPERTY = "group-coordinator.settings"

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_decode_settings = msgspec.json.Decoder(BatchSettings).decode


class Machine(Protocol):
    """Interface of `coordinator.group.machine.BatchMachine`, which decides requests."""

    def process(
        self, group_id: str | None, state: bytes | None, events: list[str], now: int
    ) -> BatchResult:
        """Decide a group's requests and the timers that are due at `now` (ms).

        `events` are JSON texts in the order of their decision. `group_id` is None for requests
        without a group; they are rejected.
        """
        ...

    def set_settings(self, settings: BatchSettings) -> None:
        """Use these settings from now on."""
        ...


MachineFactory = Callable[[], Machine]

# The machine of each function, by the function's name. A worker process serves many batches, and
# unpickles the function for each of them.
_machines: dict[str, Machine] = {}
# The settings, as JSON, that each machine received last.
_settings: dict[str, str] = {}


class GroupFunction:
    """The function given to applyInPandasWithState. `make_machine` must be picklable.

    With `arrow`, workers bypass pandas (`pipeline.session.arrow_groups`) if this release of Spark
    is known.
    """

    def __init__(self, make_machine: MachineFactory, arrow: bool = False) -> None:
        self._make_machine = make_machine
        self._arrow = arrow
        self._name = uuid.uuid4().hex

    def __setstate__(self, fields: dict[str, Any]) -> None:
        # A worker unpickles a task's function just before it reads the task's groups.
        self.__dict__ = fields
        if self._arrow and is_known_spark():
            arrow_groups.serve_next(self.decide, STREAM_COLUMNS)

    def __call__(
        self, key: tuple[str | None], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Process one group of a batch through Spark's pandas interface."""
        events: list[str] = []
        for frame in frames:
            if not state.hasTimedOut:
                events.extend(frame["events"].tolist())
        output = self.decide(key[0], events, state)
        if output is not None:
            yield pd.DataFrame({"output": [output]})

    def decide(
        self, group_id: str | None, events: list[str], state: GroupState | ArrowGroupState
    ) -> bytes | None:
        """Decide one group's events and due timers; return its output row, None if it has none."""
        timed_out = state.hasTimedOut
        stored: bytes | None = bytes(state.get[0]) if state.exists else None
        now = state.getCurrentProcessingTimeMs()
        result = self._machine().process(group_id, stored, unpack(events), now)
        wake_ms: int | None = None
        had_timer = False
        if result.state is None:
            if stored is not None or timed_out:
                state.remove()
                had_timer = True
        elif result.changed or timed_out:
            state.update((result.state,))
            had_timer = stored is not None
            if result.deadline is not None:
                wake_ms = wake_at(group_id, result.deadline, now)
                # Spark calls the group in the first batch with a later time than the timer. So the
                # timer is 1 ms before `wake_ms`, for a batch of exactly that time.
                state.setTimeoutDuration(wake_ms - now - 1)
        has_timer_change = had_timer or wake_ms is not None
        output = result.output
        if output is None:
            if not has_timer_change:
                return None
            output = GroupOutput([], [], [], [])
        output.batch_ms, output.wake_ms = now, wake_ms
        output.timer = timer_of(group_id) if has_timer_change and group_id is not None else None
        return _encode(output)

    def _machine(self) -> Machine:
        machine = _machines.get(self._name)
        if machine is None:
            machine = _machines[self._name] = self._make_machine()
            # Spark's worker collects garbage after every task, and the next task waits for it.
            # Freezing the objects of pandas and Arrow excludes nearly all of them.
            gc.collect()
            gc.freeze()
        settings = _settings_of_batch()
        if settings is not None and settings != _settings.get(self._name):
            machine.set_settings(_decode_settings(settings))
            _settings[self._name] = settings
        return machine


def _settings_of_batch() -> str | None:
    """Return the settings that the driver pinned for this batch, None if it pinned none."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(SETTINGS_PROPERTY)


def answer(requests: DataFrame, make_machine: MachineFactory) -> DataFrame:
    """Return the query's answers: column `output`, with a row for each group that has an output."""
    arrow = str(requests.sparkSession.conf.get(arrow_groups.SETTING, "true")).lower() == "true"
    if arrow and not is_known_spark():
        log.warning(
            "Spark %s: groups are passed through pandas, which takes a millisecond for each",
            pyspark.__version__,
        )
    return requests.groupBy("group_id").applyInPandasWithState(
        GroupFunction(make_machine, arrow),
        OUTPUT_SCHEMA,
        STATE_SCHEMA,
        "append",
        GroupStateTimeout.ProcessingTimeTimeout,
    )
