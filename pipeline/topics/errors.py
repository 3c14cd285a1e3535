"""What can be wrong with a topic that is a table, or with a question about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.schemas.errors import ErrorCode


class InvalidTable(Failure):
    """A table, or a column of it, that cannot be a topic; the message says why."""


class CannotFollow(Failure):
    """The table went on in a way in which its topic cannot; the message says what to do.

    The topic is served up to there.
    """


class BrokenFile(CannotFollow):
    """A file of the table cannot be read as Parquet, or not as the table's columns."""


class TableReplaced(CannotFollow):
    """The topic's table was dropped, or another one is in its place: nothing is served."""


class UnknownTopicOrPartition(Failure):
    """There is no such topic that is a table, or it has no such partition. Kafka's error 3."""


class OffsetOutOfRange(Failure):
    """The offset is not between the partition's log start and log end. Kafka's error 1."""


class AppendTimeout(Failure):
    """Records were not appended in time, because other writers were faster each time."""


class AppendStateUnknown(Failure):
    """The store failed: the records may be in the table or not, and a producer sends them again."""


class BatchRefused(Failure):
    """A batch that is not taken; `code` is Kafka's."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def check_range(topic: str, partition: int, offset: int, log_start: int, log_end: int) -> None:
    """Raise OffsetOutOfRange for an offset that is not between log start and log end."""
    if not log_start <= offset <= log_end:
        raise OffsetOutOfRange(
            f"topic {topic!r} has no offset {offset} in partition {partition}, only "
            f"{log_start} to {log_end}"
        )
