"""The driver's part in when batches begin: it tells the source when the next timer may be due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from group_coordinator.pipeline.stream.kept_looks import kept_text
from group_coordinator.pipeline.stream.wake_file import WakeFile

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.batch import GroupOutput
    from group_coordinator.pipeline.stream.timer_looks import TimerLooks


class TimerWatch:
    """Watches what the batches of one query put out; see `pipeline.stream.timer_looks`.

    `time_of_batch` returns the time of a planned batch, ms, as Spark's log of offsets has it. It is
    called for batches in which no group had an output. Only a batch's own time says which timers
    Spark has looked at, because clocks may be set back at any moment. `keep` has the
    streaming checkpoint keep a text (`pipeline.stream.kept_looks`).
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
        """Where the source finds what it is told."""
        return str(self._file.path)

    def watch(self, outputs: Iterable[GroupOutput]) -> Iterator[GroupOutput]:
        """Yield a batch's outputs, and keep when their groups are to be called."""
        self._batch_ms = self._ended = None
        for output in outputs:
            if output.batch_ms is not None:
                self._batch_ms = output.batch_ms
            self._looks.told(output.wake_ms, output.timer)
            yield output

    def ended(self, batch_id: int) -> None:
        """The batch whose outputs were watched is written: tell the source when to look next."""
        batch_ms = self._batch_ms
        self._looks.looked(self._time_of_batch(batch_id) if batch_ms is None else batch_ms)
        self._ended = batch_id
        self._file.due_ms = self._looks.next_ms()
        if self._file.is_open:
            self._file.delete()

    def wake(self) -> None:
        """Have a batch begin at once."""
        self._file.wake()

    def stopped(self) -> None:
        """The query was stopped: no further batch is planned on its streaming checkpoint."""
        if self._ended is not None:
            self._keep(kept_text(self._looks, self._ended))

    def end(self) -> None:
        """The query has ended."""
        self._file.delete()
