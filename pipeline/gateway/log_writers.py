"""Commits of produced records, by one writer for each topic, which all clients share.

Batches that arrive during a commit are written together in the next one. After an idle time, a
writer first waits `linger_ms` for more batches. A client is answered when its records are in the
table.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import without_traceback
from group_coordinator.pipeline.gateway.default_record_batch import producer_of, read_batch
from group_coordinator.pipeline.topics import (
    Appended,
    BatchRefused,
    NewBatch,
    ProducerBatchLimit,
    ProducerIdManager,
    TopicWriter,
)
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.gateway.compression import Budget
    from group_coordinator.pipeline.gateway.topic_logs import Topics
    from group_coordinator.pipeline.topics import Outcome
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# The approximate memory of a commit, bytes: waiting batches are decoded until they reach it.
_MOST_BYTES = 32 << 20
_MOST_BATCHES = 10_000
# The memory of a waiting batch in addition to its content, bytes.
_BATCH_BYTES = 2_048
# The limit of topics with a commit in progress. A commit mostly waits for the store.
_THREADS = 4


class ProducedBatch(NamedTuple):
    """A record batch as a client sent it, with its partition and the Produce version.

    The batches of a request share one `budget`.
    """

    partition: int
    data: bytes | None
    version: int
    budget: Budget


def queued_size(data: bytes | None) -> int:
    """Return the bytes that a waiting batch counts against the limit of the queue."""
    return len(data or b"") + _BATCH_BYTES


class _ProduceRequest:
    """The batches of one request for one topic, with one future for all outcomes."""

    __slots__ = ("_count", "_outcomes", "outcomes")

    def __init__(self, count: int) -> None:
        self._count = count
        self._outcomes: list[Outcome] = []
        self.outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        if not count:
            self.outcomes.set_result([])

    def add_outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if len(self._outcomes) == self._count:
            self.outcomes.set_result(self._outcomes)


class _QueuedBatch(NamedTuple):
    produced: ProducedBatch
    request: _ProduceRequest


class LogWriters:
    """The writers of the log tables of a root, for one event loop.

    Waiting batches may take `most_bytes` bytes; see `has_capacity`.
    """

    def __init__(self, root: str, topics: Topics, linger_ms: int, most_bytes: int) -> None:
        self._topics = topics
        self._most_bytes = most_bytes
        self.queued_bytes = 0
        self._ids = ProducerIdManager(root)
        self._id_lock = asyncio.Lock()
        self._linger_s = linger_ms / 1000
        self._threads = ThreadPoolExecutor(_THREADS, "produce")
        self._writers: dict[str, _LogWriter] = {}

    def has_capacity(self, size: int) -> bool:
        """Return whether batches of `size` bytes may be appended now.

        Queued batches count even after their clients timed out: while the store hangs, clients send
        them again. An empty queue accepts batches of any size.
        """
        return not self.queued_bytes or self.queued_bytes + size <= self._most_bytes

    def append(
        self, topic: TopicTable, batches: Sequence[ProducedBatch]
    ) -> asyncio.Future[list[Outcome]]:
        """Append batches to a topic, after all earlier ones. Call `has_capacity` first.

        The future has the outcome of each batch: Appended if it is written, otherwise BatchRefused
        or another Failure (AppendStateUnknown if the store failed).

        Do not cancel the future: queued batches are written even if their client timed out. If one
        were dropped, later batches of an idempotent producer would be refused as out of order.
        """
        writer = self._writers.get(topic.topic)
        if writer is None or writer.topic != topic:
            if writer is not None:
                writer.stop()
            writer = _LogWriter(
                topic, self._threads, self._linger_s, self._complete, self._topics.poll_soon
            )
            self._writers[topic.topic] = writer
        request = _ProduceRequest(len(batches))
        for batch in batches:
            self.queued_bytes += queued_size(batch.data)
            writer.append(_QueuedBatch(batch, request))
        return request.outcomes

    def _complete(self, queued: _QueuedBatch, outcome: Outcome) -> None:
        self.queued_bytes -= queued_size(queued.produced.data)
        queued.request.add_outcome(outcome)

    async def new_producer_id(self) -> int:
        """Return a unique producer id. Raises OSError, DeltaError and Failure."""
        async with self._id_lock:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._ids.next_id)

    async def close(self) -> None:
        """Write the queued batches, and end the writers."""
        for writer in self._writers.values():
            await writer.close()
        self._threads.shutdown()


class _LogWriter:
    """The writer of one topic, with one commit at a time."""

    def __init__(
        self,
        topic: TopicTable,
        threads: ThreadPoolExecutor,
        linger_s: float,
        complete: Callable[[_QueuedBatch, Outcome], None],
        poll_topic: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self._writer = TopicWriter(topic)
        self._threads = threads
        self._linger_s = linger_s
        self._complete = complete
        self._poll_topic = poll_topic
        self._queue: deque[_QueuedBatch] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def append(self, batch: _QueuedBatch) -> None:
        self._queue.append(batch)
        self._arrived.set()

    def stop(self) -> None:
        self._stopping = True
        self._arrived.set()

    async def close(self) -> None:
        self.stop()
        await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                if self._stopping:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                # The first batch lingers for more batches, because each commit writes a file.
                if not self._stopping:
                    await asyncio.sleep(self._linger_s)
                continue
            batches = [queued.produced for queued in islice(self._queue, _MOST_BATCHES)]
            outcomes = await loop.run_in_executor(self._threads, self._append, batches)
            for outcome in outcomes:
                self._complete(self._queue.popleft(), outcome)
            if any(isinstance(outcome, Appended) for outcome in outcomes):
                self._poll_topic(self.topic.topic)

    # --- in a thread ------------------------------------------------------------------------------

    def _append(self, produced: Sequence[ProducedBatch]) -> list[Outcome]:
        """Append the first batches, at least one; return their outcomes."""
        decoded = self._decode(produced)
        batches = [batch for batch in decoded if isinstance(batch, NewBatch)]
        outcomes = iter(self._writer.append(batches) if batches else ())
        return [next(outcomes) if isinstance(batch, NewBatch) else batch for batch in decoded]

    def _decode(self, produced: Sequence[ProducedBatch]) -> list[NewBatch | BatchRefused]:
        now = clock_ms()
        decoded: list[NewBatch | BatchRefused] = []
        limit = ProducerBatchLimit()
        size = 0
        for partition, data, version, budget in produced:
            if not limit.admits(partition, producer_of(data)):
                break
            try:
                read = read_batch(partition, data, version, self._writer.config, now, budget)
            except BatchRefused as refused:
                decoded.append(without_traceback(refused))
                continue
            # A bug that one batch triggers must not fail the other batches on each attempt.
            except Exception:
                log.exception("a batch for %s-%d is refused", self.topic.topic, partition)
                decoded.append(BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "it could not be read"))
                continue
            decoded.append(read.batch)
            size += read.size
            if size >= _MOST_BYTES:
                break
        return decoded
