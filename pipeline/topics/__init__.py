"""Delta tables as topics: a row is a record, with a partition and an offset that never change.

There are two kinds of such topics:

* A user's table. Its commits are followed, and an index maps offsets to the rows in its files
  (`indexer`, `index`, `table_reader`).
* A topic's own table, to which gateways and producers append. Each row has its offset, and the
  table's log is the index (`topic_writer`, `segments`, `log_reader`).

`TableTopics` reads both kinds.

Packages above may import the names below, but not the modules. This package imports
`pipeline.tables` and `pipeline.delta`. It knows no groups, members or connections, and imports
neither Spark nor pandas.

A user's table may be a topic if rows are only added to it. OPTIMIZE and VACUUM may run on it,
because a record is read from the file that first contained it. The log start moves past the rows of
a file that VACUUM deleted, and past all earlier rows. A rewritten file cannot replace it, because
OPTIMIZE may sort rows and so lose their order. A consumer may therefore lag as long as VACUUM keeps
files (`delta.deletedFileRetentionDuration`, a week by default). DELETE, UPDATE, MERGE and
overwrites end the topic before their commit, with a named error.
"""

from group_coordinator.pipeline.topics.columns import positive_hashes
from group_coordinator.pipeline.topics.definition import (
    Definitions,
    check_log_topic,
    create_log_topic,
    create_table_topic,
    log_topics,
    mark_deleted,
    read_definitions,
)
from group_coordinator.pipeline.topics.log_appender import Appended, LogAppender, Outcome
from group_coordinator.pipeline.topics.log_reader import plain_rows
from group_coordinator.pipeline.topics.producer_id_manager import ProducerIdManager
from group_coordinator.pipeline.topics.producer_state import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    retained_batches,
)
from group_coordinator.pipeline.topics.record_batch import (
    HEADERS,
    LOG_APPEND_TIME,
    NewBatch,
    Record,
    join_batches,
)
from group_coordinator.pipeline.topics.segments import (
    PartitionSegments,
    Segment,
    Segments,
    encode_segment_stats,
)
from group_coordinator.pipeline.topics.table_topics import TableTopics
from group_coordinator.pipeline.topics.topic_config import InvalidConfig, TopicConfig, decode_config
from group_coordinator.pipeline.topics.topic_errors import (
    AppendStateUnknown,
    BatchRefused,
    CannotFollow,
    InvalidTable,
    OffsetOutOfRange,
    TableReplaced,
    UnknownTopicOrPartition,
)
from group_coordinator.pipeline.topics.topic_writer import (
    ProducerBatchLimit,
    TopicWriter,
    check_size,
    check_times,
)

__all__ = [
    "HEADERS",
    "LOG_APPEND_TIME",
    "AppendStateUnknown",
    "Appended",
    "BatchRefused",
    "CannotFollow",
    "Definitions",
    "InvalidConfig",
    "InvalidProducerEpoch",
    "InvalidTable",
    "LogAppender",
    "NewBatch",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "Outcome",
    "PartitionSegments",
    "ProducerBatchLimit",
    "ProducerIdManager",
    "Record",
    "Segment",
    "Segments",
    "TableReplaced",
    "TableTopics",
    "TopicConfig",
    "TopicWriter",
    "UnknownTopicOrPartition",
    "check_log_topic",
    "check_size",
    "check_times",
    "create_log_topic",
    "create_table_topic",
    "decode_config",
    "encode_segment_stats",
    "join_batches",
    "log_topics",
    "mark_deleted",
    "plain_rows",
    "positive_hashes",
    "read_definitions",
    "retained_batches",
]
