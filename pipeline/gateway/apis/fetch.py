"""Fetch (API key 1): records from offsets on, waiting for `min_bytes` of them.

No fetch sessions (KIP-227) are kept: session 0 tells clients so, and they name their partitions in
each request. All that is written is committed, so both isolation levels see the same.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import READ, TOPIC
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.record_batch import encode_batch
from group_coordinator.pipeline.gateway.topic_logs import Bounds
from group_coordinator.pipeline.gateway.topics import MOST_AT_ONCE
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.pipeline.topics import (
    LOG_APPEND_TIME,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct
from group_coordinator.schemas.kafka.writing import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
    from group_coordinator.pipeline.topics import Record

FetchResponse = struct("FetchResponse")
log = logging.getLogger(__name__)

_Topic = FetchResponse.FetchableTopicResponse
_NONE = -1
_UNKNOWN = Bounds(_NONE, _NONE)


async def _answer(call: RequestContext, request: Any) -> bytes:
    # Tables are read, and the answer is written to its last byte, in another thread: the loop
    # serves everybody else meanwhile.
    topics = call.services.topics
    until = monotonic() + request.max_wait_ms / 1000
    most = min(request.max_bytes, call.services.settings.fetch_max_bytes)
    # As Kafka does: a fetch never waits for more than the most that is sent.
    least = min(request.min_bytes, most)
    names = {topic.topic for topic in request.topics}
    while True:
        seen = topics.news(names)
        reading = _FetchReading(call, request, most)
        answer: bytes | None = None
        for part in reading.parts():
            answer = await topics.with_logs(part, call.owner)
            # It is a method of `reading`, and would hold its records.
            del part
        left = until - monotonic()
        if answer is not None and (reading.size >= least or reading.has_failed or left <= 0):
            return answer
        if reading.size:
            # It is read again: requests that wait would hold the records of all of them.
            answer = None
        del reading
        call.held.shrink()
        # Rows that came since the reading began end the wait at once.
        has_news = await topics.wait_for_news(seen, left)
        if answer is not None and not has_news:
            return answer


class _Denied(Exception):
    """The client may not read the topic, nor learn whether it exists."""


class _FetchReading:
    """One reading of all partitions, within `max_bytes`.

    A partition that the request has more than once is answered once, as the last one says.
    """

    def __init__(self, call: RequestContext, request: Any, max_bytes: int) -> None:
        self._version = call.version
        self._held = call.held
        self._asked = {
            (topic.topic, each.partition): each
            for topic in request.topics
            for each in topic.partitions
        }
        self._found: dict[str, list[Any]] = {topic.topic: [] for topic in request.topics}
        self._max_bytes = max_bytes
        self._allowed = {name for name in self._found if call.may(READ, TOPIC, name)}
        self.size = 0
        self.has_failed = False

    def parts(self) -> Iterator[Callable[[TopicLogs], bytes | None]]:
        """Yield what is to be run, in this order; the last one returns the body of the answer."""
        asked = list(self._asked.items())
        for at in range(0, max(1, len(asked)), MOST_AT_ONCE):
            end = at + MOST_AT_ONCE
            yield partial(self._run, asked[at:end], end >= len(asked))

    def _run(
        self, asked: Sequence[tuple[tuple[str, int], Any]], is_last: bool, logs: TopicLogs
    ) -> bytes | None:
        for (topic, _), each in asked:
            self._found[topic].append(self._partition(logs, topic, each))
        if not is_last:
            return None
        responses = [_Topic(topic=name, partitions=found) for name, found in self._found.items()]
        return _body(FetchResponse(responses=responses), self._version)

    def _partition(self, logs: TopicLogs, topic: str, asked: Any) -> Any:
        bounds, records, code = _UNKNOWN, b"", ErrorCode.NONE
        try:
            if topic not in self._allowed:
                raise _Denied
            bounds = logs.bounds(topic, asked.partition)
            records = self._records(logs, topic, asked)
        except _Denied:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        except UnknownTopicOrPartition:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except OffsetOutOfRange:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        except (Failure, OSError) as error:
            # Clients ask again after a while; whoever runs the gateway reads why.
            log.warning("%s-%d cannot be read: %s", topic, asked.partition, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
        self.size += len(records)
        self._held.charge(len(records))
        self.has_failed |= code is not ErrorCode.NONE
        return _Topic.PartitionData(
            partition_index=asked.partition,
            error_code=int(code),
            high_watermark=bounds.end,
            last_stable_offset=bounds.end,
            log_start_offset=bounds.start,
            aborted_transactions=None,
            preferred_read_replica=_NONE,
            records=records,
        )

    def _records(self, logs: TopicLogs, topic: str, asked: Any) -> bytes:
        left = self._held.left
        room = min(
            asked.partition_max_bytes,
            self._max_bytes - self.size,
            max(left, FREE_BYTES - self.size),
        )
        # KIP-74: a first record that is too large is sent all the same, or nobody gets past it.
        if self.size and room <= 0:
            return b""
        records = logs.read(topic, asked.partition, asked.fetch_offset, max(room, 0))
        batches = _encode(records) if records else b""
        # Behind others, a record that is too large for what is left is not sent: clients refuse an
        # answer that is much longer than they asked for. It comes first in a later answer.
        if self.size and len(records) == 1 and self.size + len(batches) > self._max_bytes:
            return b""
        # As Kafka's memory pool does: while anything is left, one answer passes, however large.
        if left <= 0 and len(records) == 1 and self.size + len(batches) > FREE_BYTES:
            return b""
        return batches


def _body(response: Any, version: int) -> bytes:
    return writer("FetchResponse", version)(response)


def _encode(records: Sequence[Record]) -> bytes:
    if records[0].timestamp_type != LOG_APPEND_TIME:
        return encode_batch(records)
    # Clients give all records of such a batch the batch's time: a batch for each append.
    appends = groupby(records, key=attrgetter("timestamp_ms"))
    return b"".join(encode_batch(list(each), is_append_time=True) for _, each in appends)


API = ApiHandler("Fetch", _answer)
