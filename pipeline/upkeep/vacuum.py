"""VACUUM: the deletion of files that no recent version of a table needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties

from group_coordinator.pipeline.delta import check_clock, refresh
from group_coordinator.pipeline.tables import retention_properties

if TYPE_CHECKING:
    from deltalake import DeltaTable


# Each append that commits first costs a commit of delta-rs one attempt. Its default number of
# attempts is too small for tables with frequent appends.
_MANY_RETRIES = CommitProperties(max_commit_retries=1_000)


def vacuum(handle: DeltaTable, name: str, retention_hours: int) -> int:
    """Delete the files that no version of the last `retention_hours` needs; return their number.

    These include the files of killed rewrites and appends. Table `name` gets properties with which
    its log retains removed files for the same time. Raises ClockSkew if this machine's clock
    differs too much from the store's, because a file's age is the difference of the two.
    """
    check_clock(handle.table_uri)
    refresh(handle)
    wanted = retention_properties(name, retention_hours)
    if not wanted.items() <= handle.metadata().configuration.items():
        handle.alter.set_table_properties(wanted, commit_properties=_MANY_RETRIES)
    options: dict[str, Any] = {
        "retention_hours": retention_hours,
        "enforce_retention_duration": False,
        "full": True,
    }
    # A VACUUM is two commits; without files to delete the table stays at its version.
    if not handle.vacuum(dry_run=True, **options):
        return 0
    return len(
        handle.vacuum(
            dry_run=False,
            commit_properties=_MANY_RETRIES,
            **options,
        )
    )
