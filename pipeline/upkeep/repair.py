"""Repair after a loss of power: every table of a root is made readable again, or left alone by
name.

What was torn is lost: its rows may have been acknowledged, and a streaming checkpoint may count
their batch as written. `log.flush.enable` keeps batches from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.delta.torn import find_torn, mend
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from pathlib import Path

    from group_coordinator.pipeline.delta.torn import Torn


class RepairResult(Struct, frozen=True):
    """What is torn of one table, and whether it was mended; `failure` says why it was not."""

    table: str
    torn: list[Torn]
    mended: bool
    failure: str | None = None

    def lines(self) -> list[str]:
        """Return the result as lines: one for each torn file."""
        if self.failure is not None:
            return [self.failure]
        done = "voided" if self.mended else "to be voided"
        return [f"{self.table}: {each.line()}: {done}" for each in self.torn]


def repair(root: str, execute: bool = False) -> list[RepairResult]:
    """Find what is torn of the tables under a root, and mend it if it is to be executed.

    Returns the tables of which something is torn. No process may use the root meanwhile. Raises
    Failure for a root that is not in a local folder: other stores have no torn files.
    """
    folder = local_folder(root)
    if folder is None:
        raise Failure(f"{root} is not in a local folder: there is nothing to repair")
    results = []
    for table in _tables(folder):
        torn = find_torn(table)
        if torn:
            results.append(_repair_table(table.relative_to(folder), table, torn, execute))
    return results


def _repair_table(name: Path, table: Path, torn: list[Torn], execute: bool) -> RepairResult:
    if not execute:
        return RepairResult(str(name), torn, mended=False)
    try:
        return RepairResult(str(name), mend(table, torn), mended=True)
    except Failure as error:
        return RepairResult(str(name), torn, mended=False, failure=str(error))


def _tables(folder: Path) -> list[Path]:
    """Return the tables of a root, also those beside its streaming checkpoints."""
    logs = [*folder.glob("*/_delta_log"), *folder.glob("*/*/_delta_log")]
    return sorted(log.parent for log in logs)
