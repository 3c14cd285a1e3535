"""The waits of the streaming source: for requests, and then a linger for more requests.

A read polls the tables for requests (`Waiting`). Without requests, the interval of polls grows to a
hundredth of the idle time, up to 25 ms, so an idle source takes little CPU. In an object store a
poll is a request, so the interval doubles after each poll that finds nothing, up to 1 s.

A node that owns only some offsets partitions lingers over requests that can wait (`Lingering`), as
a producer lingers over records. A batch costs about as much for few requests as for many: without a
linger, four nodes run four times as many batches as one node. The linger grows as the node's share
shrinks, so that all nodes together run about as many batches as one. A node that owns all
partitions never lingers.

How long a request can wait depends on its API (`LingerMultiple`). A client does not block on a
heartbeat, and on an offset commit only in `commitSync`, so a commit waits half as long. Any other
request blocks a client, so its batch begins at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.stream.contract_types import in_contract_types, texts
from group_coordinator.schemas.apis import DECIDED, LingerMultiple

if TYPE_CHECKING:
    import pyarrow as pa

    from group_coordinator.pipeline.stream.offset import Selection
    from group_coordinator.pipeline.stream.timer_schedule import WakeFile


# The intervals between two polls, s, on a disk and in an object store.
_POLL_S, _LONGEST_POLL_S, _SHARE = 0.002, 0.025, 0.01
_STORE_POLL_S, _LONGEST_STORE_POLL_S, _SLOWER = 0.02, 1.0, 2.0
# The interval between two polls while requests linger, s. A shorter one costs CPU.
_REST_S = 0.05
# The longest and the shortest pause until the driver's wake file is read again, s.
_WAKE_POLL_S, _LEAST_PAUSE_S = 0.05, 0.0001


class Waiting:
    """The wait of one read of the source, used for read after read. Times in ms.

    It ends when a timer may be due, but not before `interval_ms`, and always after `longest_ms`.
    `wake_file` has the time of the next timer; without it, a timer may be due every interval. The
    driver ends a wait at once by waking the source.

    Timers are due by the wall clock. If it is set back, the driver's timers are late by the same
    time; others are checked after the longest wait, by the monotonic clock.
    """

    def __init__(
        self, interval_ms: int, longest_ms: int, is_store: bool, wake_file: WakeFile | None = None
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._longest_s = max(interval_ms, longest_ms) / 1000
        self._is_store = is_store
        self._wake_file = wake_file
        self._wakes = 0
        self._began = 0.0
        self._poll_s = _STORE_POLL_S
        self._poll_at = 0.0
        self._news_at = 0.0

    def begin(self) -> None:
        """Begin the wait of a read."""
        self._began = monotonic()

    def end(self) -> None:
        """End the read; a batch begins, so earlier wake-ups need no other batch."""
        if self._wake_file is not None:
            self._wakes = self._wake_file.wakes

    def is_over(self) -> bool:
        """Whether the read must return, even without requests."""
        file = self._wake_file
        if file is not None and file.wakes != self._wakes:
            return True
        waited_s = monotonic() - self._began
        if waited_s < self._interval_s:
            return False
        return file is None or waited_s >= self._longest_s or clock_ms() >= file.due_ms

    def is_poll_due(self) -> bool:
        """Whether to poll for requests now. On a disk every read polls at least once."""
        return monotonic() >= self._poll_at or (not self._is_store and self.is_over())

    def polled(self, has_news: bool) -> None:
        """Schedule the next poll: at once if the last one found events."""
        now = monotonic()
        if has_news:
            self._poll_s, self._poll_at, self._news_at = _STORE_POLL_S, 0.0, now
        elif self._is_store:
            self._poll_at = now + self._poll_s
            self._poll_s = min(_LONGEST_STORE_POLL_S, self._poll_s * _SLOWER)
        else:
            share_s = (now - self._news_at) * _SHARE
            self._poll_at = now + min(_LONGEST_POLL_S, max(_POLL_S, share_s))

    def delay_poll(self) -> None:
        """Delay the next poll, because the requests that were found can linger."""
        self._poll_at = max(self._poll_at, monotonic() + _REST_S)

    def pause_s(self) -> float:
        """Return how long to sleep before the next check, s."""
        return min(_WAKE_POLL_S, max(_LEAST_PAUSE_S, self._poll_at - monotonic()))


def linger_s(selection: Selection, linger_ms: int, most_ms: int) -> float:
    """Return how long a node with this selection waits for more requests, s; at most `most_ms`."""
    if not selection.partitions:
        return 0.0
    return min((selection.of / len(selection.partitions) - 1) * linger_ms, most_ms) / 1000


def least_linger(rows: pa.Table) -> LingerMultiple:
    """Return the shortest linger of these rows of `requests`."""
    columns = in_contract_types(rows.select([name for name in rows.column_names if name == "api"]))
    apis = pc.unique(texts(columns, "api", len(rows))).to_pylist()
    known = (DECIDED[api].linger if api in DECIDED else LingerMultiple.NONE for api in apis)
    return min(known, default=LingerMultiple.HEARTBEATS)


class Lingering:
    """The linger of one batch, at most `linger_s` of `linger_ms` and `most_ms`.

    It ends early at `most_bytes` of events, and does not begin if the previous batch was full and
    left requests unread (`begins_full`).
    """

    def __init__(self, linger_ms: int, most_ms: int, most_bytes: int, begins_full: bool) -> None:
        self._linger_ms = linger_ms
        self._most_ms = most_ms
        self._most_bytes = most_bytes
        self._is_over = begins_full
        self._until = math.inf

    def goes_on(self, linger: LingerMultiple, selection: Selection, size: int) -> bool:
        """Whether to wait for more requests after a poll that found requests with this linger.

        `size` is the size of all events since the wait began, bytes.
        """
        if self._is_over:
            return False
        now = monotonic()
        longest_s = linger_s(selection, linger * self._linger_ms, self._most_ms)
        self._until = min(self._until, now + longest_s)
        self._is_over = now >= self._until or size >= self._most_bytes
        return not self._is_over
