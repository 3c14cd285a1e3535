"""OffsetFetch: the committed offsets of partitions.

Source: Kafka's ConsumerCoordinator (fetchCommittedOffsets, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from group_coordinator.coordinator.consumer.calls import Operation
from group_coordinator.coordinator.consumer.errors import RetriableError, fatal
from group_coordinator.coordinator.consumer.positions import OffsetAndMetadata
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.queries import Queries
from group_coordinator.coordinator.consumer.reactions import ON_FETCHED_PARTITION, Reaction
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)

# Committed offsets; None for a partition without one.
Committed = dict[TopicPartition, "OffsetAndMetadata | None"]
_API = "offset_fetch"


def fetch_offsets(
    now: int,
    partitions: Iterable[TopicPartition],
    settings: ConsumerSettings,
    queries: Queries,
    timeout_ms: int | None = None,
) -> Operation[Committed]:
    """Fetch committed offsets; return the operation.

    Retriable failures are retried for `timeout_ms`, None for no limit.
    """
    wanted = tuple(sorted(set(partitions)))
    if wanted:
        what = f"fetching the committed offsets of group {settings.group_id!r}"
        read = partial(_read, settings)
        return queries.ask(now, _API, _request(wanted), read, what, timeout_ms)
    operation: Operation[Committed] = Operation()
    operation.succeed({})
    return operation


def _read(settings: ConsumerSettings, body: OffsetFetchResponse) -> Committed:
    """Return the committed offsets of an answer.

    Raises ConsumerError for a partition's error code, RetriableError if offsets are not stable yet.
    """
    unstable = False
    for topic in body.topics:
        for partition in topic.partitions:
            code = partition.error_code
            if ON_FETCHED_PARTITION.get(code) is Reaction.RETRY:
                unstable = True
            elif code != ErrorCode.NONE:
                where = f"{topic.name}-{partition.partition_index}"
                raise fatal(_API, code, settings, where)
    if unstable:
        raise RetriableError(
            f"{_API}: offsets are not stable yet", ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    return _committed(body)


def _request(partitions: tuple[TopicPartition, ...]) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    asked = tuple(OffsetFetchTopic(name, tuple(ps)) for name, ps in topics.items())
    return OffsetFetchRequest(asked, require_stable=True)


def _committed(body: OffsetFetchResponse) -> Committed:
    return {
        TopicPartition(topic.name, p.partition_index): None
        if p.committed_offset < 0
        else OffsetAndMetadata(p.committed_offset, p.metadata, p.committed_leader_epoch)
        for topic in body.topics
        for p in topic.partitions
    }
