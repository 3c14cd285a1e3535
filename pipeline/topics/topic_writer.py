"""Writing to a topic's own table: checks of batches, and appends.

Source of the rejections: Apache Kafka, LogValidator.
"""

from __future__ import annotations

import logging
from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.topics.log_appender import LogAppender
from group_coordinator.pipeline.topics.producer_state import BATCHES_KEPT, NO_PRODUCER
from group_coordinator.pipeline.topics.topic_config import decode_config
from group_coordinator.pipeline.topics.topic_errors import AppendStateUnknown, BatchRefused
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.topics.log_appender import Outcome
    from group_coordinator.pipeline.topics.record_batch import NewBatch
    from group_coordinator.pipeline.topics.topic_config import TopicConfig
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# The largest timestamp that a column of microseconds can have, ms.
_MOST_TIME = 2**63 // 1000 - 1


class TopicWriter:
    """A writer of one topic with its own table; for one thread at a time."""

    def __init__(self, topic: TopicTable) -> None:
        self.topic = topic
        self.config = decode_config(topic.config or "{}")
        self._appender: LogAppender | None = None

    def append(self, batches: Sequence[NewBatch], until: float = inf) -> list[Outcome]:
        """Append in one commit; return each batch's outcome, as `LogAppender.append` does.

        It raises nothing: if the whole append fails, each outcome is AppendStateUnknown, with the
        error's message.
        """
        try:
            if self._appender is None:
                is_append_time = self.config.message_timestamp_type == "LogAppendTime"
                self._appender = LogAppender(self.topic, is_append_time)
            return self._appender.append(batches, until)
        except Exception as error:
            if not isinstance(error, STORE_FAILS):
                log.exception("topic %s cannot be written", self.topic.topic)
            else:
                log.warning("topic %s: %s", self.topic.topic, first_line(error))
            return [AppendStateUnknown(first_line(error))] * len(batches)


class ProducerBatchLimit:
    """A limit for one commit: at most BATCHES_KEPT batches of each producer and partition.

    The log keeps only the last BATCHES_KEPT batches of a producer. It could not detect a repetition
    of earlier ones in a larger commit.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def admits(self, partition: int, producer_id: int) -> bool:
        """Count a batch of the producer; return whether the commit is still within the limit.

        Batches without a producer id (`NO_PRODUCER`) have no limit.
        """
        if producer_id == NO_PRODUCER:
            return True
        self._counts[partition, producer_id] += 1
        return self._counts[partition, producer_id] <= BATCHES_KEPT


def check_size(size: int, config: TopicConfig) -> None:
    """Raise BatchRefused for a record batch of more than max.message.bytes."""
    if size > config.max_message_bytes:
        raise BatchRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes: max.message.bytes is {config.max_message_bytes}",
        )


def check_times(least: int, latest: int, config: TopicConfig, now_ms: int) -> None:
    """Raise BatchRefused if the topic does not accept timestamps from `least` to `latest` (ms)."""
    if config.message_timestamp_type != "CreateTime":
        return
    if latest > now_ms + config.message_timestamp_after_max_ms:
        raise BatchRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record's timestamp, {latest}, is beyond message.timestamp.after.max.ms",
        )
    for time in (least, latest):
        if abs(time) > _MOST_TIME:
            raise BatchRefused(ErrorCode.INVALID_TIMESTAMP, f"there is no time {time}")
