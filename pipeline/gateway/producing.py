"""What clients produce becomes commits: one writer for each topic, whatever many clients send.

While a commit is under way, what arrives waits, and becomes the next commit together, after
`linger_ms`. A client is answered when its records are in the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import bare
from group_coordinator.pipeline.gateway.produced_batch import producer_of, read_batch
from group_coordinator.pipeline.topics import (
    Appended,
    BatchRefused,
    NewBatch,
    OneCommit,
    ProducerIds,
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

# About what one commit takes of memory, bytes: what waits is opened until it is so much.
_MOST_BYTES = 32 << 20
_MOST_BATCHES = 10_000
# What a batch that waits takes beside its bytes.
_BATCH_BYTES = 2_048
# Topics that are written to at once; a commit mostly waits for the store.
_THREADS = 4


class Produced(NamedTuple):
    """A record batch as a client sent it to a partition, in Produce of a version.

    The batches of a request have one `budget`.
    """

    partition: int
    data: bytes | None
    version: int
    budget: Budget


def waiting_size(data: bytes | None) -> int:
    """The room that a batch takes while it waits to be written, bytes."""
    return len(data or b"") + _BATCH_BYTES


class _ProduceRequest:
    """The batches of one request for one topic, which are told of together."""

    __slots__ = ("_count", "_found", "outcomes")

    def __init__(self, count: int) -> None:
        self._count = count
        self._found: list[Outcome] = []
        self.outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        if not count:
            self.outcomes.set_result([])

    def tell(self, outcome: Outcome) -> None:
        """Take what became of the next batch."""
        self._found.append(outcome)
        if len(self._found) == self._count:
            self.outcomes.set_result(self._found)


class _Waiting(NamedTuple):
    produced: Produced
    request: _ProduceRequest


class Producing:
    """Appends to the topics of a root that have tables of their own; for one event loop.

    Batches that wait for their commits may take `most_bytes`: see `has_room`.
    """

    def __init__(self, root: str, topics: Topics, linger_ms: int, most_bytes: int) -> None:
        self._topics = topics
        self._most_bytes = most_bytes
        self.waiting_bytes = 0
        self._ids = ProducerIds(root)
        self._giving = asyncio.Lock()
        self._linger_s = linger_ms / 1000
        self._threads = ThreadPoolExecutor(_THREADS, "produce")
        self._writers: dict[str, _Writer] = {}

    def has_room(self, size: int) -> bool:
        """Whether batches of this size, bytes, may be appended now.

        What waits in the queue waits whether its client does or not: while the store hangs, clients
        give up and send again. Where nothing waits, there is room for anything.
        """
        return not self.waiting_bytes or self.waiting_bytes + size <= self._most_bytes

    def append(
        self, topic: TopicTable, batches: Sequence[Produced]
    ) -> asyncio.Future[list[Outcome]]:
        """Append to a topic, after all that was appended before; `has_room` is asked first.

        The future has what became of each batch. A batch that cannot be taken has BatchRefused as
        its outcome, or another Failure of its own, AppendStateUnknown where the store failed. The
        future is not to be cancelled: what was taken in is written, whoever still waits for it. Of
        an idempotent producer a later batch may be written, and then none before it.
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
        """Return a producer id that nobody else has. Raises OSError, DeltaError and Failure."""
        async with self._giving:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._ids.take)

    async def close(self) -> None:
        """End the writers; what they have taken in is written first."""
        for writer in self._writers.values():
            await writer.close()
        self._threads.shutdown()

    def _tell(self, topic: str) -> None:
        """Let those who wait for records of a topic look."""
        self._topics.look_soon(topic)


class _Writer:
    """Appends to one topic, a commit at a time."""

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
        """Take nothing more in."""
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
                # The first to come waits for those that are about to: a commit costs a file.
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
        """Append the first batches, one at least; return what became of each of them."""
        opened = self._open(waiting)
        batches = [each for each in opened if isinstance(each, NewBatch)]
        outcomes = iter(self._writer.append(batches) if batches else ())
        return [next(outcomes) if isinstance(each, NewBatch) else each for each in opened]

    def _open(self, waiting: Sequence[Produced]) -> list[NewBatch | BatchRefused]:
        now = clock_ms()
        found: list[NewBatch | BatchRefused] = []
        commit = OneCommit()
        size = 0
        for partition, data, version, budget in waiting:
            if not commit.takes(partition, producer_of(data)):
                break
            try:
                opened = read_batch(partition, data, version, self._writer.config, now, budget)
            except BatchRefused as refused:
                found.append(bare(refused))
                continue
            # A bug that one batch meets must not have the others refused, again and again.
            except Exception:
                log.exception("a batch for %s-%d is refused", self.topic.topic, partition)
                found.append(BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "it could not be read"))
                continue
            found.append(opened.batch)
            size += opened.size
            if size >= _MOST_BYTES:
                break
        return found
