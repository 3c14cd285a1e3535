"""The waits of a read of the source: for requests, and then, by the linger, for more requests.

A read waits for requests, and polls the tables for new versions meanwhile (`Waiting`).

The longer no request has come, the longer is the interval to the next look: a hundredth of that
time, up to 25 ms. So a source without requests takes little CPU. In an object store a look is a
request, so the interval is doubled after each look that finds nothing, up to 1 s.

A node that shares the partitions lingers (`Lingering`): it waits a little for more requests, as a
producer lingers over records. It waits only while all requests can wait. The smaller its share of
the partitions, the longer it waits. A batch costs about as much for few requests as for many, and
each node runs its own batches. Four nodes that begin a batch at every commit run four times the
batches of one node. With lingering, all nodes together begin about as many batches as one node
does. A node that owns all partitions never lingers.

How long a request can wait depends on its API (`LingerMultiple`). The sender of a heartbeat does
not block until the answer. The sender of an offset commit blocks only in `commitSync`, so a commit
waits half as long. A member that joins, syncs, leaves or fetches its offsets blocks until the
answer, or makes other members wait. An administrator blocks as well. The batch of such a request
begins at once.
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

    from group_coordinator.pipeline.stream.selection import Selection
    from group_coordinator.pipeline.stream.wake_file import WakeFile


# The intervals between two looks, s, on a disk and in an object store.
_POLL_S, _LONGEST_POLL_S, _SHARE = 0.002, 0.025, 0.01
_STORE_POLL_S, _LONGEST_STORE_POLL_S, _SLOWER = 0.02, 1.0, 2.0
# The interval between two looks while requests linger, s. A shorter one costs each node CPU.
_REST_S = 0.05
# The longest and the shortest pause until the driver's wake file is read again, s.
_WAKE_POLL_S, _LEAST_PAUSE_S = 0.05, 0.0001


class Waiting:
    """The waits of one source, read after read. Times in ms, unless a name says otherwise.

    A wait ends after `interval_ms` if a timer may be due then, else as soon as a timer may be due.
    It ends after `longest_ms` at the latest. So timers are checked at most every `interval_ms`.
    `wake_file` says when a timer may be due; without one, a timer may be due at every interval. The
    driver ends a wait at once by waking the source.

    A timer is due by the wall clock, which may be set forward at any moment, so each check reads
    the clock. If the clock is set back, the driver's timers are later by the same time. Other
    timers are checked after the longest wait, which uses the monotonic clock.
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
        """End the read: a batch begins, so wake-ups until now need no further batch."""
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
        """Whether to look for requests now. On a disk every read looks at least once."""
        return monotonic() >= self._poll_at or (not self._is_store and self.is_over())

    def polled(self, has_news: bool) -> None:
        """Schedule the next poll of the tables; it is due at once if the last one found events."""
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
        """Delay the next look a little, because the requests that were found can linger."""
        self._poll_at = max(self._poll_at, monotonic() + _REST_S)

    def pause_s(self) -> float:
        """Return how long to sleep before the next check whether a look is due, s."""
        return min(_WAKE_POLL_S, max(_LEAST_PAUSE_S, self._poll_at - monotonic()))


def linger_s(selection: Selection, linger_ms: int, most_ms: int) -> float:
    """Return how long a node with this selection waits for more requests, s: at most `most_ms`."""
    if not selection.partitions:
        return 0.0
    return min((selection.of / len(selection.partitions) - 1) * linger_ms, most_ms) / 1000


def least_linger(rows: pa.Table) -> LingerMultiple:
    """Return the smallest linger of these rows of `requests`."""
    columns = in_contract_types(rows.select([name for name in rows.column_names if name == "api"]))
    apis = pc.unique(texts(columns, "api", len(rows))).to_pylist()
    known = (DECIDED[api].linger if api in DECIDED else LingerMultiple.NONE for api in apis)
    return min(known, default=LingerMultiple.HEARTBEATS)


class Lingering:
    """The linger of one batch; `linger_s` gives its time from `linger_ms` and `most_ms`.

    It ends early at `most_bytes` of events. `begins_full` means that a full batch has left requests
    unread: the batch begins at once.
    """

    def __init__(self, linger_ms: int, most_ms: int, most_bytes: int, begins_full: bool) -> None:
        self._linger_ms = linger_ms
        self._most_ms = most_ms
        self._most_bytes = most_bytes
        self._is_over = begins_full
        self._until = math.inf

    def goes_on(self, linger: LingerMultiple, selection: Selection, size: int) -> bool:
        """Whether to wait for more requests after a look that found requests with this linger.

        `size` is the size of all events since the wait began, bytes.
        """
        if self._is_over:
            return False
        now = monotonic()
        longest_s = linger_s(selection, linger * self._linger_ms, self._most_ms)
        self._until = min(self._until, now + longest_s)
        self._is_over = now >= self._until or size >= self._most_bytes
        return not self._is_over
