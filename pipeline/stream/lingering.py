"""Lingering: a node that shares the partitions lets requests wait a little for more of them.

A node lingers over requests that can wait, as a producer lingers over records, the longer the
smaller its share of the partitions. A batch costs about as much for few requests as for many, and
each node has its own: four nodes that begin one at every commit take four times the batches of one.
With lingering all nodes together begin about as many batches as one node does. A node that owns
everything never lingers.

How long a request can wait depends on who waits for its answer (`LingerMultiple`). A heartbeat's
sender goes on meanwhile. So does the sender of an offset commit, unless it is a `commitSync`: a
commit waits half as long. A member that joins, syncs, leaves or fetches its offsets waits for the
answer, or has others wait, and so does an administrator: their batch begins at once.
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
    """How long a node with this selection waits for more requests, s: at most `most_ms`."""
    if not selection.partitions:
        return 0.0
    return min((selection.of / len(selection.partitions) - 1) * linger_ms, most_ms) / 1000


def least_linger(rows: pa.Table) -> LingerMultiple:
    """Return the least that one of these rows of `requests` can wait."""
    columns = in_contract_types(rows.select([name for name in rows.column_names if name == "api"]))
    apis = pc.unique(texts(columns, "api", len(rows))).to_pylist()
    known = (DECIDED[api].linger if api in DECIDED else LingerMultiple.NONE for api in apis)
    return min(known, default=LingerMultiple.HEARTBEATS)


class Lingering:
    """The lingering of one batch: over at most `most_bytes` of events, for `linger_ms` a share.

    `begins_full` says that a full batch has left requests over, whose batch begins at once.
    """

    def __init__(self, linger_ms: int, most_ms: int, most_bytes: int, begins_full: bool) -> None:
        self._linger_ms = linger_ms
        self._most_ms = most_ms
        self._most_bytes = most_bytes
        self._is_over = begins_full
        self._until = math.inf

    def goes_on(self, linger: LingerMultiple, selection: Selection, size: int) -> bool:
        """Whether to wait for more after a look, whose requests, if any, can wait this long.

        `size` is that of all events since the wait began, bytes.
        """
        if self._is_over:
            return False
        now = monotonic()
        longest_s = linger_s(selection, linger * self._linger_ms, self._most_ms)
        self._until = min(self._until, now + longest_s)
        self._is_over = now >= self._until or size >= self._most_bytes
        return not self._is_over
