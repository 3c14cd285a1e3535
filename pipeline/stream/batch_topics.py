"""Which catalogue of topics a batch is decided by: the same one whenever it is run again.

A batch that was cut off is run again after a restart, and what its first run has written stays: if
the second run knew other topics, a commit could be in the offsets topic and be answered 3, UNKNOWN_
TOPIC_OR_PARTITION. So the catalogue is part of a batch's input, as its requests and its time are.

The driver reads it, once a batch and before the batch's one action, and hands it to the tasks as a
local property of their job (`pipeline.stream.stateful`): the workers read nothing, and all of them
know the same. When it differs from the one before, it is pinned first: a row (query, batch,
catalogue) beside the checkpoint. The first batch after a start may be one that is run again, so it
takes what is pinned for it; the next one looks anew.

Why not let the workers take the rows of the catalogue up to the batch's own time, which a second
run has too: a row is stamped before it is committed, by another machine's clock. What the first run
could not see yet, the second would. Why no control event for each group, as a load is: it would
wake every group there is for every change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pipeline.delta.open import open_appender, raise_epoch
from pipeline.delta.table import open_delta
from pipeline.tables.store import ensure_table, table_uri
from pipeline.tables.topic_watcher import TopicWatcher
from schemas.catalogue import encode_catalogue
from schemas.messages import Int64
from schemas.tables import Table, arrow_schema, from_arrow, to_arrow

if TYPE_CHECKING:
    from pipeline.delta.epoch import Epoch


class Pin(Struct, frozen=True):
    """The catalogue, as JSON, by which a query decides from this batch on; null is no catalogue."""

    query_id: str
    batch_id: Int64
    topics: str


class BatchTopics:
    """The catalogue of each batch of a query. Raises FencedError as every writer of a node does."""

    def __init__(self, root: str, checkpoint: str, epoch: Epoch | None = None) -> None:
        folder, _, name = checkpoint.rstrip("/").rpartition("/")
        self._table = Table(f"{name}-topics", arrow_schema(Pin))
        self._uri = table_uri(folder, self._table)
        ensure_table(folder, self._table)
        if epoch is not None:
            raise_epoch(self._uri, epoch)
        self._appender = open_appender(self._uri, epoch)
        self._watcher = TopicWatcher(root)
        self._query_id = ""
        self._topics = ""

    def of_batch(self, query_id: str, batch_id: int) -> str:
        """Return the catalogue for a batch, as JSON (`schemas.catalogue`)."""
        if query_id != self._query_id:
            self._query_id = query_id
            self._topics = self._pinned(batch_id)
            if self._topics:
                return self._topics
        self._watcher.poll()
        topics = encode_catalogue(self._watcher.catalogue)
        if topics != self._topics:
            pin = to_arrow(self._table, [Pin(query_id, batch_id, topics)])
            written = self._appender.append(pin, query_id, batch_id)
            self._topics = topics if written else self._pinned(batch_id)
        return self._topics

    def _pinned(self, batch_id: int) -> str:
        """What is pinned for the batch, "" if nothing is."""
        pins = from_arrow(Pin, open_delta(self._uri).to_pyarrow_table())
        mine = [p for p in pins if p.query_id == self._query_id and p.batch_id <= batch_id]
        return max(mine, key=lambda pin: pin.batch_id).topics if mine else ""
