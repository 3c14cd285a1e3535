"""VACUUM: deleting the files that no recent version of a table needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties

from group_coordinator.pipeline.delta.store_check import check_clock
from group_coordinator.pipeline.delta.table import refresh
from group_coordinator.pipeline.tables.store import retention_properties

if TYPE_CHECKING:
    from deltalake import DeltaTable


# A commit by delta-rs loses an attempt to each append that comes first. With delta-rs' default
# number of attempts some commits beside busy appenders are given up.
_PATIENT = CommitProperties(max_commit_retries=1_000)


def vacuum(handle: DeltaTable, name: str, retention_hours: int) -> int:
    """Delete the files that no version of the last `retention_hours` needs; return how many.

    Files that a killed rewrite or append left behind are among them. The properties of the table,
    `name`, are set so that its log names removed files for as long. Raises ClockSkew: a file's age
    is the store's time against this machine's.
    """
    check_clock(handle.table_uri)
    refresh(handle)
    wanted = retention_properties(name, retention_hours)
    if not wanted.items() <= handle.metadata().configuration.items():
        handle.alter.set_table_properties(wanted, commit_properties=_PATIENT)
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
            commit_properties=_PATIENT,
            **options,
        )
    )
