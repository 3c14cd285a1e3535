"""Linger: a node that shares the partitions waits a little for more requests.

It waits only while all requests can wait, as a producer lingers over records. The smaller its share
of the partitions, the longer it waits. A batch costs about as much for few requests as for many,
and each node runs its own batches. Four nodes that begin a batch at every commit run four times the
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

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.stream.contract_types import in_contract_types, texts
from group_coordinator.schemas.apis import DECIDED, LingerMultiple

if TYPE_CHECKING:
    import pyarrow as pa

    from group_coordinator.pipeline.stream.offset import Selection


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
