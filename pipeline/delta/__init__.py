"""Delta tables: opening, appending, following, rewriting, and trimming their logs.

Other packages import the names below, never the modules. The package knows neither this project's
tables and columns nor its nodes: callers pass a URI, a folder or an open table. It imports neither
Spark nor pandas. COMMITS.md describes how a table is written.
"""

from typing import TYPE_CHECKING

from group_coordinator.pipeline import lazy_names

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.appender import (
        Appender,
        Epoch,
        FencedError,
        TableWatch,
        raise_epoch,
    )
    from group_coordinator.pipeline.delta.checkpoint import clean_log
    from group_coordinator.pipeline.delta.commit import (
        Action,
        AddedFile,
        parse_commit,
        removes_files,
    )
    from group_coordinator.pipeline.delta.data_file import (
        COMMITTABLE_S,
        ROW_GROUP_BYTES,
        DataFile,
        Layout,
        copy_file,
        count_bytes,
        count_records,
        data_files,
        dataset_of,
        modified_within,
        to_table,
        write_rows,
    )
    from group_coordinator.pipeline.delta.failures import STORE_FAILS
    from group_coordinator.pipeline.delta.feature_removal import asked_features, make_plain
    from group_coordinator.pipeline.delta.followed import TableFollower, TableTail, follow
    from group_coordinator.pipeline.delta.identity import (
        GoneCheck,
        SameTable,
        TableAway,
        TableReplacedError,
        commit_time_s,
        read_commit,
        table_number,
    )
    from group_coordinator.pipeline.delta.log import (
        LogGone,
        has_first_commit,
        is_table,
        time_of_new_rows,
    )
    from group_coordinator.pipeline.delta.log_trim import trim_log
    from group_coordinator.pipeline.delta.object_store import ObjectStore
    from group_coordinator.pipeline.delta.parquet_file import (
        UNREAD,
        Substitute,
        newest_first,
        open_parquet,
        read_files,
        read_rows,
        read_whole,
        why_undecodable,
    )
    from group_coordinator.pipeline.delta.protocol import UnsupportedTable
    from group_coordinator.pipeline.delta.replay import Ask, PlainTable, quoted, read_plain_table
    from group_coordinator.pipeline.delta.retry_budget import RetryBudget
    from group_coordinator.pipeline.delta.snapshot import Change, LiveFiles
    from group_coordinator.pipeline.delta.storage import CommitStateUnknown
    from group_coordinator.pipeline.delta.store_check import check_clock, check_store
    from group_coordinator.pipeline.delta.store_files import (
        AT_ONCE,
        OutsideTable,
        is_in_store,
        open_files,
        side_by_side,
    )
    from group_coordinator.pipeline.delta.table import (
        ATTEMPTS,
        OUTSIDE,
        absolute_uri,
        is_outside,
        local_folder,
        open_delta,
        open_store,
        refresh,
    )
    from group_coordinator.pipeline.delta.table_files import (
        Engine,
        TableFiles,
        UnfitRows,
        VersionFiles,
    )
    from group_coordinator.pipeline.delta.tail import Position, RowGroups, appended
    from group_coordinator.pipeline.delta.torn import Torn, TornTable, check_whole, find_torn, mend
    from group_coordinator.pipeline.delta.writer import AppendConflict, LiveWriter, TooOld

if not TYPE_CHECKING:
    # A module is imported when one of its names is first used, because most callers need not wait
    # for delta-rs, Arrow or DuckDB.
    __getattr__ = lazy_names(
        __name__,
        appender="Appender Epoch FencedError TableWatch raise_epoch",
        checkpoint="clean_log",
        commit="Action AddedFile parse_commit removes_files",
        data_file=(
            "COMMITTABLE_S DataFile Layout ROW_GROUP_BYTES copy_file count_bytes "
            "count_records data_files dataset_of modified_within to_table write_rows"
        ),
        failures="STORE_FAILS",
        feature_removal="asked_features make_plain",
        followed="TableFollower TableTail follow",
        identity=(
            "GoneCheck SameTable TableAway TableReplacedError commit_time_s read_commit "
            "table_number"
        ),
        log="LogGone has_first_commit is_table time_of_new_rows",
        log_trim="trim_log",
        object_store="ObjectStore",
        parquet_file=(
            "Substitute UNREAD newest_first open_parquet read_files read_rows read_whole "
            "why_undecodable"
        ),
        protocol="UnsupportedTable",
        replay="Ask PlainTable quoted read_plain_table",
        retry_budget="RetryBudget",
        snapshot="Change LiveFiles",
        storage="CommitStateUnknown",
        store_check="check_clock check_store",
        store_files="AT_ONCE OutsideTable is_in_store open_files side_by_side",
        table=(
            "ATTEMPTS OUTSIDE absolute_uri is_outside local_folder open_delta open_store refresh"
        ),
        table_files="Engine TableFiles UnfitRows VersionFiles",
        tail="Position RowGroups appended",
        torn="Torn TornTable check_whole find_torn mend",
        writer="AppendConflict LiveWriter TooOld",
    )
