"""The driver's part of the timer schedule: it tells the source when the next timer may be due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from group_coordinator.pipeline.stream.kept_looks import kept_text
from group_coordinator.pipeline.stream.wake_file import WakeFile

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.batch import GroupOutput
    from group_coordinator.pipeline.stream.timer_looks import TimerLooks


class TimerWatch:
    """Observer of the outputs of one query's batches; see `pipeline.stream.timer_looks`.

    `time_of_batch` returns the time of a planned batch, ms, from Spark's log of offsets. It is
    called for batches in which no group had an output. Only a batch's own time says which timers
    Spark has checked, because clocks may be set back at any moment. `keep` stores a text in the
    streaming checkpoint (`pipeline.stream.kept_looks`).
    """

    def __init__(
        self,
        looks: TimerLooks,
        time_of_batch: Callable[[int], int],
        keep: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._looks = looks
        self._time_of_batch = time_of_batch
        self._keep = keep
        self._batch_ms: int | None = None
        # The last batch, once its outputs are written.
        self._ended: int | None = None
        self._file = WakeFile.create()

    @property
    def path(self) -> str:
        """The path of the wake file, which the source opens."""
        return str(self._file.path)

    def watch(self, outputs: Iterable[GroupOutput]) -> Iterator[GroupOutput]:
        """Yield a batch's outputs, and record when their groups must be called."""
        self._batch_ms = self._ended = None
        for output in outputs:
            if output.batch_ms is not None:
                self._batch_ms = output.batch_ms
            self._looks.told(output.wake_ms, output.timer)
            yield output

    def ended(self, batch_id: int) -> None:
        """Record that the watched batch is written; tell the source when the next one is due."""
        batch_ms = self._batch_ms
        self._looks.looked(self._time_of_batch(batch_id) if batch_ms is None else batch_ms)
        self._ended = batch_id
        self._file.due_ms = self._looks.next_ms()
        if self._file.is_open:
            self._file.delete()

    def wake(self) -> None:
        """Make a batch begin at once."""
        self._file.wake()

    def stopped(self) -> None:
        """Store the ticks: the query was stopped, and its checkpoint gets no further batch."""
        if self._ended is not None:
            self._keep(kept_text(self._looks, self._ended))

    def end(self) -> None:
        """Delete the wake file after the query has ended."""
        self._file.delete()
