"""The project's tables: their locations under a root, and how they are created, written and read.

Other packages import the names below, never the modules. The package knows neither decisions of
groups nor ownership of partitions nor Spark. The views over the tables are in `schemas/views.sql`.
"""

from typing import TYPE_CHECKING

from group_coordinator.pipeline import lazy_names

if TYPE_CHECKING:
    from group_coordinator.pipeline.tables.acl_table import (
        AclWatcher,
        add_acls,
        read_acls,
        remove_acls,
    )
    from group_coordinator.pipeline.tables.columns import (
        LaterRelease,
        SchemaMismatch,
        add_missing_columns,
        check_columns,
        dataset,
    )
    from group_coordinator.pipeline.tables.format import is_known_format
    from group_coordinator.pipeline.tables.offsets_log import OffsetsLog
    from group_coordinator.pipeline.tables.private_file import (
        changing,
        create_private,
        read_private,
        write_private,
    )
    from group_coordinator.pipeline.tables.request_keys import (
        KeysError,
        add_key,
        new_key,
        read_key,
        read_keys,
        remove_key,
    )
    from group_coordinator.pipeline.tables.request_log import (
        RequestLog,
        open_requests,
        wanted_row_groups,
        write_request_file,
    )
    from group_coordinator.pipeline.tables.request_signer import (
        KEY_FILE,
        PRINCIPAL,
        RequestSigner,
    )
    from group_coordinator.pipeline.tables.segment_stats import (
        SegmentBounds,
        decode_bounds,
        log_end_id,
        partition_in,
        partition_of,
    )
    from group_coordinator.pipeline.tables.store import (
        CHECKPOINT_INTERVAL,
        WRITTEN,
        Absent,
        Looks,
        TableMissing,
        check_release,
        check_whole_table,
        ensure_table,
        ensure_tables,
        has_mark,
        has_root,
        has_table,
        last_written,
        open_table,
        read_table,
        retention_properties,
        set_mark,
        table_uri,
    )
    from group_coordinator.pipeline.tables.topic_catalogue import (
        InvalidPartitions,
        InvalidTopic,
        TopicExists,
        TopicWatcher,
        UnknownTopic,
        alter_topic,
        check_more_partitions,
        check_name,
        check_new_topic,
        create_topic,
        creations_of,
        delete_topic,
        read_changes,
    )

if not TYPE_CHECKING:
    # A module is imported when one of its names is first used, because most callers need not wait
    # for delta-rs, Arrow or DuckDB.
    __getattr__ = lazy_names(
        __name__,
        acl_table="AclWatcher add_acls read_acls remove_acls",
        columns="LaterRelease SchemaMismatch add_missing_columns check_columns dataset",
        format="is_known_format",
        offsets_log="OffsetsLog",
        private_file="changing create_private read_private write_private",
        request_keys="KeysError add_key new_key read_key read_keys remove_key",
        request_log="RequestLog open_requests wanted_row_groups write_request_file",
        request_signer="KEY_FILE PRINCIPAL RequestSigner",
        segment_stats="SegmentBounds decode_bounds log_end_id partition_in partition_of",
        store=(
            "Absent CHECKPOINT_INTERVAL Looks TableMissing WRITTEN check_release "
            "check_whole_table ensure_table ensure_tables has_mark has_root has_table last_written "
            "open_table read_table retention_properties set_mark table_uri"
        ),
        topic_catalogue=(
            "InvalidPartitions InvalidTopic TopicExists TopicWatcher UnknownTopic alter_topic "
            "check_more_partitions check_name check_new_topic create_topic creations_of "
            "delete_topic read_changes"
        ),
    )
