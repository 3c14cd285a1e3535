"""Fetch (API key 1): records from offsets on, waiting for `min_bytes` of them.

No fetch sessions (KIP-227) are kept: session 0 tells clients so, and they name their partitions in
each request. All that is written is committed, so both isolation levels see the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import FetchRequest, FetchResponse

from pipeline.clock import monotonic
from pipeline.gateway.api import Api
from pipeline.gateway.record_batch import encode_batch
from pipeline.gateway.topic_logs import OffsetOutOfRange
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from pipeline.gateway.call import Call
    from pipeline.gateway.topic_logs import TopicLog

_Topic = FetchResponse.FetchableTopicResponse
_NONE = -1


async def _answer(call: Call, request: FetchRequest) -> FetchResponse:
    topics = call.services.topics
    until = monotonic() + request.max_wait_ms / 1000
    while True:
        seen = topics.news
        reading = _Reading(call, request.max_bytes)
        responses = [await reading.topic(topic) for topic in request.topics]
        left = until - monotonic()
        if reading.size >= request.min_bytes or reading.has_failed or left <= 0:
            return FetchResponse(session_id=0, responses=responses)
        # Rows that came since the reading began end the wait at once.
        await topics.wait_for_news(seen, left)


class _Reading:
    """One reading of all partitions, within the request's `max_bytes`."""

    def __init__(self, call: Call, max_bytes: int) -> None:
        self._topics = call.services.topics
        self._max_bytes = max_bytes
        self.size = 0
        self.has_failed = False

    async def topic(self, asked: Any) -> Any:
        """Read a topic's partitions."""
        partitions = [await self._partition(asked.topic, each) for each in asked.partitions]
        return _Topic(topic=asked.topic, partitions=partitions)

    async def _partition(self, topic: str, asked: Any) -> Any:
        log = self._topics.log(topic, asked.partition)
        if log is None:
            return self._failed(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NONE, _NONE)
        start, end = log.start(asked.partition), log.end(asked.partition)
        room = min(asked.partition_max_bytes, self._max_bytes - self.size)
        # KIP-74: a first record that is too large is sent all the same, or nobody gets past it.
        if self.size and room <= 0:
            records = b""
        else:
            try:
                records = await self._topics.in_thread(
                    _read, log, asked.partition, asked.fetch_offset, max(room, 0)
                )
            except OffsetOutOfRange:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
                return self._failed(asked.partition, code, start, end)
        self.size += len(records)
        return _partition(asked.partition, ErrorCode.NONE, start, end, records)

    def _failed(self, partition: int, code: ErrorCode, start: int, end: int) -> Any:
        self.has_failed = True
        return _partition(partition, code, start, end, b"")


def _read(log: TopicLog, partition: int, offset: int, max_bytes: int) -> bytes:
    page = log.read(partition, offset, max_bytes)
    return b"" if page is None else encode_batch(page.first_offset, page.records)


def _partition(partition: int, code: ErrorCode, start: int, end: int, records: bytes) -> Any:
    return _Topic.PartitionData(
        partition_index=partition,
        error_code=int(code),
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=start,
        aborted_transactions=None,
        preferred_read_replica=_NONE,
        records=records,
    )


API = Api(FetchRequest, 4, 12, _answer)
