"""The APIs that read topics: Fetch and ListOffsets.

There are no fetch sessions (KIP-227): responses have session id 0, so each request names its
partitions. There are no transactions, so both isolation levels return the same records.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import DESCRIBE, READ, TOPIC
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch
from group_coordinator.pipeline.gateway.topic_logs import MOST_PARTITIONS_AT_ONCE, Bounds
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
    from group_coordinator.pipeline.topics import Record

log = logging.getLogger(__name__)

_NONE = -1


# --- Fetch (API key 1): returns records, and waits for `min_bytes` of them ------------------------


FetchResponse = struct("FetchResponse")
_Topic = FetchResponse.FetchableTopicResponse
_UNKNOWN = Bounds(_NONE, _NONE)


async def _fetch(call: RequestContext, request: Any) -> bytes:
    # Another thread reads the tables and encodes the whole response, so that the event loop serves
    # other clients meanwhile.
    topics = call.services.topics
    until = monotonic() + request.max_wait_ms / 1000
    most = min(request.max_bytes, call.services.settings.fetch_max_bytes)
    # As in Kafka, a fetch waits for at most as many bytes as the response may have.
    least = min(request.min_bytes, most)
    names = {topic.topic for topic in request.topics}
    while True:
        seen = topics.change_counts(names)
        reading = _FetchReading(call, request, most)
        answer: bytes | None = None
        for part in reading.parts():
            answer = await topics.read_logs(part, call.owner)
            # `part` is bound to `reading`, and would keep its records in memory.
            del part
        left = until - monotonic()
        if answer is not None and (reading.size >= least or reading.has_failed or left <= 0):
            return answer
        if reading.size:
            # Drop the response and read again later: waiting requests must not hold records.
            answer = None
        del reading
        call.response_memory.resize()
        # Rows that were added since the start of this reading end the wait at once.
        has_changed = await topics.wait_for_change(seen, left)
        if answer is not None and not has_changed:
            return answer


class _Denied(Exception):
    """Error for a client that may not read the topic, nor learn whether it exists."""


class _FetchReading:
    """One read of all partitions of a Fetch request, of at most `max_bytes`.

    A partition that the request repeats is answered once, by its last entry.
    """

    def __init__(self, call: RequestContext, request: Any, max_bytes: int) -> None:
        self._version = call.version
        self._response_memory = call.response_memory
        self._asked = {
            (topic.topic, each.partition): each
            for topic in request.topics
            for each in topic.partitions
        }
        self._found: dict[str, list[Any]] = {topic.topic: [] for topic in request.topics}
        self._max_bytes = max_bytes
        self._allowed = {name for name in self._found if call.authorize(READ, TOPIC, name)}
        self.size = 0
        self.has_failed = False

    def parts(self) -> Iterator[Callable[[TopicLogs], bytes | None]]:
        """Yield the functions that read the partitions; the last one returns the response body."""
        asked = list(self._asked.items())
        for at in range(0, max(1, len(asked)), MOST_PARTITIONS_AT_ONCE):
            end = at + MOST_PARTITIONS_AT_ONCE
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
            # Clients retry after their backoff. The log has the reason for the operator.
            log.warning("%s-%d cannot be read: %s", topic, asked.partition, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
        self.size += len(records)
        self._response_memory.charge(len(records))
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
        left = self._response_memory.available
        room = min(
            asked.partition_max_bytes,
            self._max_bytes - self.size,
            max(left, FREE_BYTES - self.size),
        )
        # KIP-74: the first record is sent even if it is too large, so that consumers progress.
        if self.size and room <= 0:
            return b""
        records = logs.read(topic, asked.partition, asked.fetch_offset, max(room, 0))
        batches = _encode(records) if records else b""
        # After other records, a record that exceeds the remaining bytes is not sent, because
        # clients reject a response that is much larger than requested. A later fetch sends it
        # first.
        if self.size and len(records) == 1 and self.size + len(batches) > self._max_bytes:
            return b""
        # As in Kafka's memory pool, one response of any size passes while any memory is left.
        if left <= 0 and len(records) == 1 and self.size + len(batches) > FREE_BYTES:
            return b""
        return batches


def _body(response: Any, version: int) -> bytes:
    return writer("FetchResponse", version)(response)


def _encode(records: Sequence[Record]) -> bytes:
    if records[0].timestamp_type != LOG_APPEND_TIME:
        return encode_batch(records)
    # Clients give all records of such a batch the time of the batch. So each append is a batch.
    appends = groupby(records, key=attrgetter("timestamp_ms"))
    return b"".join(encode_batch(list(each), is_append_time=True) for _, each in appends)


FETCH = ApiHandler("Fetch", _fetch)


# --- ListOffsets (API key 2): the first offset, the end offset, and offsets by time ---------------


ListOffsetsResponse = struct("ListOffsetsResponse")
_ListedTopic = ListOffsetsResponse.ListOffsetsTopicResponse
_LATEST = -1
_EARLIEST = -2
# The offset of the latest timestamp (KIP-734).
_MAX_TIMESTAMP = -3
# The first offset on the broker's disk (KIP-405). It is the first offset: there is no tiered
# storage.
_EARLIEST_LOCAL = -4
# The last offset in tiered storage (KIP-1005). There is none.
_LATEST_TIERED = -5
_EPOCH = 0


async def _list_offsets(call: RequestContext, request: Any) -> Any:
    names = {topic.name for topic in request.topics}
    allowed = {name for name in names if call.authorize(DESCRIBE, TOPIC, name)}
    counts = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    found = []
    for topic in request.topics:
        results: list[Any] = []
        if topic.name not in allowed:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results = [_result(each.partition_index, code) for each in topic.partitions]
        else:
            for at in range(0, len(topic.partitions), MOST_PARTITIONS_AT_ONCE):
                some = topic.partitions[at : at + MOST_PARTITIONS_AT_ONCE]
                read = partial(_partitions, topic.name, some, counts)
                results += await call.services.topics.read_logs(read, call.owner)
        found.append(_ListedTopic(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=found)


def _partitions(
    topic: str, asked: Sequence[Any], counts: Mapping[tuple[str, int], int], logs: TopicLogs
) -> list[Any]:
    results = []
    is_fresh = False
    for each in asked:
        if counts[topic, each.partition_index] > 1:
            # Kafka refuses a partition that the request has more than once.
            results.append(_result(each.partition_index, ErrorCode.INVALID_REQUEST))
        else:
            found = _partition(logs, topic, each.partition_index, each.timestamp, is_fresh)
            results.append(found)
            is_fresh |= each.timestamp == _LATEST
    return results


def _partition(logs: TopicLogs, topic: str, partition: int, timestamp: int, is_fresh: bool) -> Any:
    code, offset, of_time = ErrorCode.NONE, _NONE, _NONE
    try:
        if timestamp == _LATEST:
            # The end offset includes records that another gateway has acknowledged.
            if not is_fresh:
                logs.refresh(topic)
            offset = logs.bounds(topic, partition).end
        elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            offset = logs.bounds(topic, partition).start
        elif timestamp == _MAX_TIMESTAMP:
            offset, of_time = logs.offset_of_max_timestamp(topic, partition) or (_NONE, _NONE)
        elif timestamp == _LATEST_TIERED:
            # There is no such offset, but the call reports an unknown topic or partition.
            logs.bounds(topic, partition)
        elif timestamp >= 0:
            offset, of_time = logs.offset_for_time(topic, partition, timestamp) or (_NONE, _NONE)
        else:
            # Later versions of the API may define more negative timestamps.
            code = ErrorCode.UNSUPPORTED_VERSION
    except UnknownTopicOrPartition:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (Failure, OSError) as error:
        # Clients retry after their backoff. The log has the reason for the operator.
        log.warning("%s-%d cannot be read: %s", topic, partition, error)
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return _result(partition, code, offset, of_time)


def _result(partition: int, code: ErrorCode, offset: int = _NONE, of_time: int = _NONE) -> Any:
    return _ListedTopic.ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=int(code),
        timestamp=of_time,
        offset=offset,
        leader_epoch=_NONE if offset == _NONE else _EPOCH,
    )


LIST_OFFSETS = ApiHandler("ListOffsets", _list_offsets, in_thread=True)
