"""What a producer gathers before it is written: a deque of batches for each partition.

Pure: no thread, lock or clock. Times are ms of one steady clock, sizes bytes by `record_size`.

Source: Kafka's RecordAccumulator and BufferPool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from group_coordinator.coordinator.producer.partitioners import Partitioner

Headers = Sequence[tuple[str, "bytes | None"]]
# What a record takes beside its key, value and headers, as Kafka estimates it of a record that is
# a batch by itself (DefaultRecordBatch.estimateBatchSizeUpperBound). Python takes about as much.
RECORD_OVERHEAD = 82
# What a header takes beside its key and value: Kafka's two lengths.
_HEADER_OVERHEAD = 10


def record_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return how many bytes a record counts for."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
    return size


class RecordBatch:
    """Records of one partition that are told of together.

    `keys`, `values` and `timestamps` (ms) are lists, or columns of a table. `headers` None: no
    record has any. `created` is when the first one came. `delivery` is the caller's, who tells by
    it what became of the batch; `callbacks` are of records, by their places.
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
        # The size of its largest record.
        self.largest = 0
        self.is_closed = False
        self.keys: Any = []
        self.values: Any = []
        self.timestamps: Any = []
        self.headers: Any = None
        self.callbacks: list[tuple[int, Callable[..., None]]] = []

    def __len__(self) -> int:
        return len(self.timestamps)

    def forget(self) -> None:
        """Let go of what nobody needs once the batch was told of: handles keep the batch."""
        self.keys = self.values = self.headers = None
        self.callbacks = []


class TopicQueue:
    """The batches of one topic's partitions, of which there are `count`."""

    def __init__(
        self,
        batch_size: int,
        linger_ms: int,
        partitioner: Partitioner,
        count: int,
        new_delivery: Callable[[], Any],
    ) -> None:
        self.count = count
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._partitioner = partitioner
        self._new_delivery = new_delivery
        self._waiting: dict[int, deque[RecordBatch]] = {}

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def choose(self, key: bytes | None, value: bytes | None, size: int) -> int:
        """Return the partition of a record for which none is given."""
        found = self._partitioner.partition(key, value, self.count)
        if key is None and self._open_batch(found, size) is None:
            return self._partitioner.of_new_batch(found, self.count)
        return found

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
        """Take a record; return its batch, in which it is the last."""
        batch = self._open_batch(partition, size)
        if batch is None:
            batch = self._begin(partition, now)
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
        """Take records as columns: keys, values, timestamps, headers.

        They are a batch by themselves, behind all that the partition has, of `size` bytes; the
        largest record has `largest`.
        """
        batch = self._begin(partition, now)
        batch.keys, batch.values, batch.timestamps, batch.headers = columns
        batch.size, batch.largest = size, largest
        batch.is_closed = True
        return batch

    def is_full(self, batch: RecordBatch) -> bool:
        """Whether nothing more is waited for to be added to a batch."""
        return batch.is_closed or batch.size >= self._batch_size

    def ready_at(self) -> float | None:
        """When what waits is due to be written; None if nothing waits.

        All is due with the first batch: a commit takes whatever there is.
        """
        due: float | None = None
        for waiting in self._waiting.values():
            if waiting:
                first = waiting[0]
                full = len(waiting) > 1 or self.is_full(first)
                at = first.created if full else first.created + self._linger_ms
                due = at if due is None else min(due, at)
        return due

    def drain(self, most_bytes: int) -> list[RecordBatch]:
        """Take out batches for one commit, the oldest of each partition first, one at least.

        Nothing more is added to them.
        """
        taken: list[RecordBatch] = []
        left = most_bytes
        for partition in list(self._waiting):
            waiting, before = self._waiting[partition], len(taken)
            while waiting and (not taken or waiting[0].size <= left):
                left -= waiting[0].size
                taken.append(waiting.popleft())
            if len(taken) > before:
                # Where there is more, it has its turn behind the others.
                del self._waiting[partition]
                if waiting:
                    self._waiting[partition] = waiting
        return taken

    def _open_batch(self, partition: int, size: int) -> RecordBatch | None:
        waiting = self._waiting.get(partition)
        if not waiting:
            return None
        batch = waiting[-1]
        if batch.is_closed or batch.size + size > self._batch_size:
            return None
        return batch

    def _begin(self, partition: int, now: float) -> RecordBatch:
        batch = RecordBatch(partition, now, self._new_delivery())
        self._waiting.setdefault(partition, deque()).append(batch)
        return batch


class Memory:
    """`buffer.memory`, and who waits for some of it: whoever came first goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.blocked: deque[object] = deque()

    def fits(self, size: int, ticket: object | None = None) -> bool:
        """Whether there is room for so much, for whoever has the ticket, if any."""
        if self.blocked and self.blocked[0] is not ticket:
            return False
        return self.used + size <= self.most

    def take(self, size: int) -> None:
        """Take room that `fits` has found."""
        self.used += size

    def give_back(self, size: int) -> None:
        """Give room back."""
        self.used -= size
