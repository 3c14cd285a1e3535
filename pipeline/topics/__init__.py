"""Delta tables as topics: a row is a record, with a partition and an offset that never change.

`gateway`, `client`, `replay` and `cli` may import the names below, and no module behind them; this
package imports `pipeline.tables` and `pipeline.delta`. Nothing here knows groups, members or
connections, and neither Spark nor pandas is imported.

A table may be a topic if rows are only added to it. OPTIMIZE and VACUUM may run on it: a record is
read from the file that it came in. What VACUUM has deleted lies before the log start, with all that
came earlier: OPTIMIZE may sort rows, so a rewritten file does not tell their order. So a consumer
may lag as long as VACUUM keeps files (`delta.deletedFileRetentionDuration`, a week by
default). DELETE, UPDATE, MERGE and overwrites end the topic before their commit, by name.
"""

from pipeline.topics.definition import create_table_topic
from pipeline.topics.errors import (
    CannotFollow,
    InvalidTable,
    OffsetOutOfRange,
    TableReplaced,
    UnknownTopicOrPartition,
)
from pipeline.topics.table_topics import Record, TableTopics

__all__ = [
    "CannotFollow",
    "InvalidTable",
    "OffsetOutOfRange",
    "Record",
    "TableReplaced",
    "TableTopics",
    "UnknownTopicOrPartition",
    "create_table_topic",
]
