"""One commit by delta-rs, and whether it is in the table after delta-rs said that it failed.

delta-rs reports a failure for commits that are in the table: when the store's answer was lost, it
repeats the commit, finds the version taken by itself and refuses its own transaction as a
concurrent one; when the answer does not come at all, it reports a timeout. So after an error the
table's history is read: each commit has an identifier of its own.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta.actions import COMMIT_ID
from group_coordinator.pipeline.delta.commit import CommitStateUnknown
from group_coordinator.pipeline.delta.table import refresh
from group_coordinator.pipeline.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable, Transaction


class RemoteCommit:
    """A commit to the table of `handle`, to be made with `properties`."""

    def __init__(
        self,
        handle: DeltaTable,
        transactions: Sequence[Transaction],
        max_commit_retries: int | None = None,
    ) -> None:
        self._handle = handle
        self._since = handle.version()
        self._id = str(uuid.uuid4())
        self.properties = CommitProperties(
            custom_metadata={COMMIT_ID: self._id},
            max_commit_retries=max_commit_retries,
            app_transactions=list(transactions),
        )

    def stands(self, error: Exception) -> bool:
        """Return whether the commit, which failed with `error`, is in the table all the same.

        Brings the handle to the newest version. Raises CommitStateUnknown if the table cannot be
        read.
        """
        try:
            refresh(self._handle)
            newer = self._handle.version() - self._since
            infos = self._handle.history(newer) if newer else []
        except (DeltaError, OSError) as unreadable:
            raise CommitStateUnknown(
                f"it is not known whether {self._handle.table_uri} was written: "
                f"{first_line(error)}; then {first_line(unreadable)}"
            ) from error
        return any(info.get(COMMIT_ID) == self._id for info in infos)
