"""What clients produce becomes commits: one writer for each topic, whatever many clients send.

While a commit is under way, what arrives waits, and becomes the next commit together, after
`linger_ms`. A client is answered when its records are in the table.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.gateway.produced_batch import Refused, read_batch
from group_coordinator.pipeline.gateway.producer_ids import ProducerIds
from group_coordinator.pipeline.topics import LogAppender, NewBatch, decode_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.gateway.topics import Topics
    from group_coordinator.pipeline.topics import Outcome
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# What one commit takes in at most, bytes as sent; more waits for the next one.
_MOST_BYTES = 32 << 20
# Topics that are written to at once; a commit mostly waits for the store.
_THREADS = 4


class Produced(NamedTuple):
    """A record batch as a client sent it to a partition, in Produce of a version."""

    partition: int
    data: bytes | None
    version: int


class NotWritten(Failure):
    """The records may be in the table or not: the store failed. A client sends them again."""


class _Request(NamedTuple):
    batches: Sequence[Produced]
    outcomes: asyncio.Future[list[Outcome]]

    @property
    def size(self) -> int:
        return sum(len(each.data or b"") for each in self.batches)


class Producing:
    """Appends to the topics of a root that have tables of their own; for one event loop."""

    def __init__(self, root: str, topics: Topics, linger_ms: int) -> None:
        self._topics = topics
        self._ids = ProducerIds(root)
        self._giving = asyncio.Lock()
        self._linger_s = linger_ms / 1000
        self._threads = ThreadPoolExecutor(_THREADS, "produce")
        self._writers: dict[str, _Writer] = {}

    def append(
        self, topic: TopicTable, batches: Sequence[Produced]
    ) -> asyncio.Future[list[Outcome]]:
        """Append to a topic, after all that was appended before.

        The future has what became of each batch, once it is in the table. A batch that cannot be
        taken has Refused as its outcome, or another Failure of its own. The future may fail with
        NotWritten. It is not to be cancelled: what was taken in is written, whoever still waits for
        it. Of an idempotent producer a later batch may be written, and then none before it.
        """
        writer = self._writers.get(topic.topic)
        if writer is None or writer.topic != topic:
            if writer is not None:
                writer.stop()
            writer = _Writer(topic, self._threads, self._linger_s, self._tell)
            self._writers[topic.topic] = writer
        return writer.append(batches)

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
        tell: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self._config = decode_config(topic.config or "{}")
        self._threads = threads
        self._linger_s = linger_s
        self._tell = tell
        self._waiting: list[_Request] = []
        self._arrived = asyncio.Event()
        self._stopping = False
        self._appender: LogAppender | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def append(self, batches: Sequence[Produced]) -> asyncio.Future[list[Outcome]]:
        request = _Request(batches, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        return request.outcomes

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
            requests = self._take()
            try:
                found = await loop.run_in_executor(self._threads, self._append, requests)
            except Exception as error:
                if not isinstance(error, (OSError, DeltaError, Failure)):
                    log.exception("topic %s cannot be written", self.topic.topic)
                else:
                    log.warning("topic %s: %s", self.topic.topic, first_line(error))
                for request in requests:
                    request.outcomes.set_exception(NotWritten(first_line(error)))
                continue
            for request, outcomes in zip(requests, found, strict=True):
                request.outcomes.set_result(outcomes)
            self._tell(self.topic.topic)

    def _take(self) -> list[_Request]:
        taken: list[_Request] = []
        size = 0
        while self._waiting and (not taken or size + self._waiting[0].size <= _MOST_BYTES):
            request = self._waiting.pop(0)
            taken.append(request)
            size += request.size
        return taken

    # --- in a thread ------------------------------------------------------------------------------

    def _append(self, requests: Sequence[_Request]) -> list[list[Outcome]]:
        """What became of each request's batches."""
        now = clock_ms()
        read = [[self._read(each, now) for each in request.batches] for request in requests]
        taken = [batch for each in read for batch in each if isinstance(batch, NewBatch)]
        outcomes = iter(self._write(taken) if taken else ())
        return [
            [next(outcomes) if isinstance(batch, NewBatch) else batch for batch in each]
            for each in read
        ]

    def _read(self, produced: Produced, now: int) -> NewBatch | Refused:
        partition, data, version = produced
        try:
            return read_batch(partition, data, version, self._config, now)
        except Refused as refused:
            return refused

    def _write(self, batches: list[NewBatch]) -> list[Outcome]:
        if self._appender is None:
            is_append_time = self._config.message_timestamp_type == "LogAppendTime"
            self._appender = LogAppender(self.topic, is_append_time)
        return self._appender.append(batches)
