"""Of several nodes, each waits a little for more before it begins a batch that nobody waits for.

A batch costs about as much for few requests as for many, and each node has its own: four nodes that
begin one at every commit take four times the batches of one. So a node that owns a share of the
partitions lingers over requests that can wait, as a producer lingers over records, the longer the
smaller its share: all nodes together then begin about as many batches as one node does. A node that
owns everything never lingers.

Heartbeats and offset commits can wait: a member goes on meanwhile. A member that joins, syncs,
leaves or fetches its offsets stands still until it is answered, or lets others stand still, and so
does an administrator: their batch begins at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.clock import monotonic
from pipeline.stream.contract_types import in_contract_types, texts

if TYPE_CHECKING:
    from pipeline.stream.offset import Selection

_CAN_WAIT = pa.array(["heartbeat", "offset_commit"])


def linger_s(selection: Selection, linger_ms: int, most_ms: int) -> float:
    """How long a node that selects so waits for more requests, s: at most `most_ms`."""
    if not selection.partitions:
        return 0.0
    return min((selection.of / len(selection.partitions) - 1) * linger_ms, most_ms) / 1000


def can_wait(rows: pa.Table) -> bool:
    """Whether none of these rows of `requests` keeps anybody waiting who stands still meanwhile."""
    columns = in_contract_types(rows.select([name for name in rows.column_names if name == "api"]))
    return pc.all(pc.is_in(texts(columns, "api", len(rows)), _CAN_WAIT)).as_py() is not False


class Lingering:
    """The lingering of one batch: over at most `most_bytes` of events, for `linger_ms` a share.

    `begins_full` says that a full batch has left requests over, whose batch begins at once.
    """

    def __init__(self, linger_ms: int, most_ms: int, most_bytes: int, begins_full: bool) -> None:
        self._linger_ms = linger_ms
        self._most_ms = most_ms
        self._most_bytes = most_bytes
        self._is_over = begins_full or not linger_ms
        self._until: float | None = None

    def goes_on(self, can_wait: bool, selection: Selection, size: int) -> bool:
        """Whether to wait for more after a look that found events, all of which can wait or not.

        `size` is that of all events since the wait began, bytes.
        """
        if self._is_over:
            return False
        if self._until is None:
            self._until = monotonic() + linger_s(selection, self._linger_ms, self._most_ms)
        self._is_over = monotonic() >= self._until or size >= self._most_bytes or not can_wait
        return not self._is_over
