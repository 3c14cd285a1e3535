"""Errors of topics with tables, and of requests for them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import TableReplacedError
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_coordinator.schemas.errors import ErrorCode


class InvalidTable(Failure):
    """A table that cannot be a topic, or a column that a topic cannot use; the message says why."""


class CannotFollow(Failure):
    """A change of the table that its topic cannot follow; the message says why, or what to do.

    The topic is served up to the change; after a TableReplaced nothing is served.
    """


class BrokenFile(CannotFollow):
    """A file of the table that cannot be read as Parquet, or not with the table's column types."""


class TableReplaced(CannotFollow):
    """The topic's table was dropped, or replaced by another one: nothing is served."""


@contextmanager
def naming_topic(uri: str) -> Iterator[None]:
    """Raise TableReplaced, which says what to do, for a TableReplacedError of a topic's table."""
    try:
        yield
    except TableReplacedError as error:
        raise TableReplaced(
            f"the table at {uri} was replaced: {error.why}. Delete the topic and create it again"
        ) from error


class UnknownTopicOrPartition(Failure):
    """No topic with a table has this name, or it lacks the partition. Kafka's error 3."""


class OffsetOutOfRange(Failure):
    """The offset is not between the partition's log start and log end. Kafka's error 1."""


class AppendTimeout(Failure):
    """Records that were not appended in time, because other writers committed first each time."""


class AppendStateUnknown(Failure):
    """The store failed: the records may or may not be in the table, so the producer retries."""


class BatchRefused(Failure):
    """A batch that the topic rejects; `code` is Kafka's error code."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def check_range(topic: str, partition: int, offset: int, log_start: int, log_end: int) -> None:
    """Raise OffsetOutOfRange unless log start <= offset <= log end."""
    if not log_start <= offset <= log_end:
        raise OffsetOutOfRange(
            f"topic {topic!r} has no offset {offset} in partition {partition}, only "
            f"{log_start} to {log_end}"
        )
