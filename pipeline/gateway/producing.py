"""Commits of produced records, by one writer for each topic, which all clients share.

Batches that arrive during a commit are written together in the next one. After an idle time, a
writer waits `linger_ms` for more batches first. A client is answered when its records are in the
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
from group_coordinator.pipeline.gateway.produced_batch import producer_of, read_batch
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
    from group_coordinator.pipeline.gateway.topics import Topics
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


class Produced(NamedTuple):
    """A record batch as a client sent it, with its partition and the version of Produce.

    The batches of a request share one `budget`.
    """

    partition: int
    data: bytes | None
    version: int
    budget: Budget


def waiting_size(data: bytes | None) -> int:
    """Return the bytes that count against the limit while a batch waits to be written."""
    return len(data or b"") + _BATCH_BYTES


class _ProduceRequest:
    """The batches of one request for one topic, with one future for all outcomes."""

    __slots__ = ("_count", "_found", "outcomes")

    def __init__(self, count: int) -> None:
        self._count = count
        self._found: list[Outcome] = []
        self.outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        if not count:
            self.outcomes.set_result([])

    def tell(self, outcome: Outcome) -> None:
        """Add the outcome of the next batch; complete the future with the last one."""
        self._found.append(outcome)
        if len(self._found) == self._count:
            self.outcomes.set_result(self._found)


class _Waiting(NamedTuple):
    produced: Produced
    request: _ProduceRequest


class Producing:
    """The writers of the log tables of a root. For one event loop.

    Batches that wait for their commits may take `most_bytes`; see `has_room`.
    """

    def __init__(self, root: str, topics: Topics, linger_ms: int, most_bytes: int) -> None:
        self._topics = topics
        self._most_bytes = most_bytes
        self.waiting_bytes = 0
        self._ids = ProducerIdManager(root)
        self._giving = asyncio.Lock()
        self._linger_s = linger_ms / 1000
        self._threads = ThreadPoolExecutor(_THREADS, "produce")
        self._writers: dict[str, _Writer] = {}

    def has_room(self, size: int) -> bool:
        """Return whether batches of `size` bytes may be appended now.

        Queued batches count even after their clients timed out: while the store hangs, clients send
        them again. If the queue is empty, batches of any size are accepted.
        """
        return not self.waiting_bytes or self.waiting_bytes + size <= self._most_bytes

    def append(
        self, topic: TopicTable, batches: Sequence[Produced]
    ) -> asyncio.Future[list[Outcome]]:
        """Append batches to a topic, after all earlier ones. Call `has_room` first.

        The future has the outcome of each batch. A batch that is not written has BatchRefused or
        another Failure as its outcome; AppendStateUnknown if the store failed.

        Do not cancel the future: queued batches are written even if their client timed out. If a
        later batch of an idempotent producer is written, earlier ones are refused as out of order.
        """
        writer = self._writers.get(topic.topic)
        if writer is None or writer.topic != topic:
            if writer is not None:
                writer.stop()
            writer = _Writer(topic, self._threads, self._linger_s, self._settle, self._tell)
            self._writers[topic.topic] = writer
        request = _ProduceRequest(len(batches))
        for each in batches:
            self.waiting_bytes += waiting_size(each.data)
            writer.append(_Waiting(each, request))
        return request.outcomes

    def _settle(self, waiting: _Waiting, outcome: Outcome) -> None:
        self.waiting_bytes -= waiting_size(waiting.produced.data)
        waiting.request.tell(outcome)

    async def new_producer_id(self) -> int:
        """Return a unique producer id. Raises OSError, DeltaError and Failure."""
        async with self._giving:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._ids.next_id)

    async def close(self) -> None:
        """Write the queued batches, and end the writers."""
        for writer in self._writers.values():
            await writer.close()
        self._threads.shutdown()

    def _tell(self, topic: str) -> None:
        """Poll a topic for its new records, so that waiting fetches see them."""
        self._topics.look_soon(topic)


class _Writer:
    """The writer of one topic, with one commit at a time."""

    def __init__(
        self,
        topic: TopicTable,
        threads: ThreadPoolExecutor,
        linger_s: float,
        settle: Callable[[_Waiting, Outcome], None],
        tell: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self._writer = TopicWriter(topic)
        self._threads = threads
        self._linger_s = linger_s
        self._settle = settle
        self._tell = tell
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def append(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._arrived.set()

    def stop(self) -> None:
        """Finish after the queued batches."""
        self._stopping = True
        self._arrived.set()

    async def close(self) -> None:
        self.stop()
        await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                if self._stopping:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                # The first batch lingers for more batches, because each commit writes a file.
                if not self._stopping:
                    await asyncio.sleep(self._linger_s)
                continue
            waiting = [each.produced for each in islice(self._waiting, _MOST_BATCHES)]
            outcomes = await loop.run_in_executor(self._threads, self._append, waiting)
            for outcome in outcomes:
                self._settle(self._waiting.popleft(), outcome)
            if any(isinstance(each, Appended) for each in outcomes):
                self._tell(self.topic.topic)

    # --- in a thread ------------------------------------------------------------------------------

    def _append(self, waiting: Sequence[Produced]) -> list[Outcome]:
        """Append the first batches, at least one; return their outcomes."""
        opened = self._open(waiting)
        batches = [each for each in opened if isinstance(each, NewBatch)]
        outcomes = iter(self._writer.append(batches) if batches else ())
        return [next(outcomes) if isinstance(each, NewBatch) else each for each in opened]

    def _open(self, waiting: Sequence[Produced]) -> list[NewBatch | BatchRefused]:
        now = clock_ms()
        found: list[NewBatch | BatchRefused] = []
        limit = ProducerBatchLimit()
        size = 0
        for partition, data, version, budget in waiting:
            if not limit.admits(partition, producer_of(data)):
                break
            try:
                opened = read_batch(partition, data, version, self._writer.config, now, budget)
            except BatchRefused as refused:
                found.append(without_traceback(refused))
                continue
            # A bug that one batch triggers must not fail the other batches on each attempt.
            except Exception:
                log.exception("a batch for %s-%d is refused", self.topic.topic, partition)
                found.append(BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "it could not be read"))
                continue
            found.append(opened.batch)
            size += opened.size
            if size >= _MOST_BYTES:
                break
        return found
