"""Topics with rows of Delta tables as records; a row's partition and offset never change.

There are two kinds:

* A user's table. Its commits are followed, and an index maps offsets to rows of its files
  (`indexer`, `index`, `table_reader`).
* A topic's own table, to which gateways and producers append. Each row has its offset, and the
  table's log is the index (`topic_writer`, `segments`, `log_reader`).

`TableTopics` reads both kinds. Other packages import the names below, never the modules. The
package knows no groups, members or connections, and imports neither Spark nor pandas.

A user's table may be a topic if rows are only added to it. A record is read from the file that
first contained it, because OPTIMIZE may change the order of rows. Once VACUUM has deleted that
file, the log start is after its rows. A commit of DELETE, UPDATE, MERGE or an overwrite succeeds,
but the topic then ends with the rows before it, and an error names the operation. README.md has the
details.
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
from group_coordinator.pipeline.topics.producer_state import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerIdManager,
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
