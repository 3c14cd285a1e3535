"""Records that a producer has accepted and not yet written: a deque of batches per partition.

Pure: no thread, lock or clock. Times are ms of one monotonic clock. Sizes are bytes, as
`record_size` counts them. Source: Kafka's RecordAccumulator and BufferPool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from group_coordinator.coordinator.producer.partitioners import Partitioner

Headers = Sequence[tuple[str, "bytes | None"]]
# Overhead of a record in bytes, without its key, value and headers: Kafka's estimate for a batch of
# one record (DefaultRecordBatch.estimateBatchSizeUpperBound). Python objects need about as much.
RECORD_OVERHEAD = 82
# Overhead of a header in bytes, without its key and value: Kafka's two length fields.
_HEADER_OVERHEAD = 10


def record_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the size of a record, bytes: content plus overhead. All limits count it."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
    return size


class RecordBatch:
    """Records of one partition that are written together and share one delivery.

    `keys`, `values` and `timestamps` (ms) are lists, or columns of a table. `headers` None: no
    record has headers. `created` is the time (ms) at which the batch was begun. The caller
    completes `delivery` with the outcome of the write. `callbacks` are pairs of a record's index in
    the batch and its callback.
    """

    __slots__ = (
        "callbacks",
        "created",
        "delivery",
        "headers",
        "is_closed",
        "keys",
        "largest",
        "partition",
        "size",
        "timestamps",
        "values",
    )

    def __init__(self, partition: int, created: float, delivery: Any) -> None:
        self.partition = partition
        self.created = created
        self.delivery = delivery
        self.size = 0
        # The size of its largest record, bytes.
        self.largest = 0
        self.is_closed = False
        self.keys: Any = []
        self.values: Any = []
        self.timestamps: Any = []
        self.headers: Any = None
        self.callbacks: list[tuple[int, Callable[..., None]]] = []

    def __len__(self) -> int:
        return len(self.timestamps)

    def clear(self) -> None:
        """Free the keys, values, headers and callbacks after the delivery is completed.

        The timestamps stay: the handles of sent records read them from the batch.
        """
        self.keys = self.values = self.headers = None
        self.callbacks = []


class TopicQueue(Struct, eq=False):
    """The unwritten batches of one topic; `count` is its number of partitions."""

    _batch_size: int
    _linger_ms: int
    _partitioner: Partitioner
    count: int
    _new_delivery: Callable[[], Any]
    _batches: dict[int, deque[RecordBatch]] = {}

    def __bool__(self) -> bool:
        return any(self._batches.values())

    def choose_partition(self, key: bytes | None, value: bytes | None, size: int) -> int:
        """Return the partition of a record that is sent without one; `size` in bytes."""
        partition = self._partitioner.partition(key, value, self.count)
        if key is None and self._open_batch(partition, size) is None:
            return self._partitioner.on_new_batch(partition, self.count)
        return partition

    def append(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        size: int,
        now: float,
    ) -> RecordBatch:
        """Append a record of `size` bytes; return its batch, in which it is the last record."""
        batch = self._open_batch(partition, size)
        if batch is None:
            batch = self._begin_batch(partition, now)
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp_ms)
        if headers or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [()] * (len(batch.values) - 1)
            batch.headers.append(tuple(headers))
        batch.size += size
        if size > batch.largest:
            batch.largest = size
        return batch

    def append_columns(
        self, partition: int, columns: Sequence[Any], size: int, largest: int, now: float
    ) -> RecordBatch:
        """Append a closed batch of columns: keys, values, timestamps and headers. Return the batch.

        `size` is the size of all records, `largest` that of the largest one, in bytes.
        """
        batch = self._begin_batch(partition, now)
        batch.keys, batch.values, batch.timestamps, batch.headers = columns
        batch.size, batch.largest = size, largest
        batch.is_closed = True
        return batch

    def is_full(self, batch: RecordBatch) -> bool:
        """Whether a batch is due without lingering: it is closed, or has `batch.size` bytes."""
        return batch.is_closed or batch.size >= self._batch_size

    def ready_at(self) -> float | None:
        """Return the time (ms) at which the next commit is due; None if no batch waits.

        A partition is due at once if its first batch is full or a second one has begun, and
        otherwise after `linger.ms`. The earliest partition decides, because a commit takes batches
        of all of them.
        """
        due: float | None = None
        for batches in self._batches.values():
            if batches:
                first = batches[0]
                full = len(batches) > 1 or self.is_full(first)
                at = first.created if full else first.created + self._linger_ms
                due = at if due is None else min(due, at)
        return due

    def drain(self, most_bytes: int) -> list[RecordBatch]:
        """Remove and return the batches of one commit, oldest first within each partition.

        They have at most `most_bytes` together, but the first batch is taken even if it is larger.
        No record is added to a drained batch.
        """
        taken: list[RecordBatch] = []
        remaining = most_bytes
        for partition in list(self._batches):
            batches, before = self._batches[partition], len(taken)
            while batches and (not taken or batches[0].size <= remaining):
                remaining -= batches[0].size
                taken.append(batches.popleft())
            if len(taken) > before:
                # A partition with more batches moves to the end, so that partitions take turns.
                del self._batches[partition]
                if batches:
                    self._batches[partition] = batches
        return taken

    def _open_batch(self, partition: int, size: int) -> RecordBatch | None:
        batches = self._batches.get(partition)
        if not batches:
            return None
        batch = batches[-1]
        if batch.is_closed or batch.size + size > self._batch_size:
            return None
        return batch

    def _begin_batch(self, partition: int, now: float) -> RecordBatch:
        batch = RecordBatch(partition, now, self._new_delivery())
        self._batches.setdefault(partition, deque()).append(batch)
        return batch


class BufferPool:
    """The memory pool of `buffer.memory` bytes, with a FIFO queue of blocked senders.

    `blocked` has one ticket (any object) for each sender that waits for memory, oldest first.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self.blocked: deque[object] = deque()

    def fits(self, size: int, ticket: object | None = None) -> bool:
        """Whether `size` bytes are free for the sender with this ticket.

        While senders are blocked, only the first ticket of the queue gets memory.
        """
        if self.blocked and self.blocked[0] is not ticket:
            return False
        return self.used + size <= self.total

    def allocate(self, size: int) -> None:
        """Allocate `size` bytes, after `fits` returned True."""
        self.used += size

    def deallocate(self, size: int) -> None:
        """Return `size` bytes to the pool."""
        self.used -= size
