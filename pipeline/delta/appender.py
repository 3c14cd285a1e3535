"""Appending to a table: one Parquet file and one commit, at most once per (application, version).

An application is a name in Delta's transaction identifiers, such as a streaming query's id; its
versions rise with each append, as the query's batch ids do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Collection


class AppendConflict(Failure):
    """An append that lost against other writers `ATTEMPTS` times; it is not in the table."""


class Appender(Protocol):
    """Appends to one table."""

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; False if the application wrote this version, or a later one.

        `rows` None commits only that the application has come to this version. Raises
        AppendConflict when other writers win every attempt, FencedError when the appender has an
        epoch and the table records a later one, CommitStateUnknown when the append may be in the
        table or not: repeated under the same application and version it is not written twice.
        """
        ...

    def write_ahead(self, rows: pa.Table) -> None:
        """Begin to write the file of rows that the next append is given, where that takes long.

        If that append finds its version written, no commit names the file, and VACUUM deletes it.
        """
        ...

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        ...

    def forget(self) -> None:
        """Read what other writers committed, also those that wrote under an application of ours."""
        ...


class TableAppender(Appender, Protocol):
    """An appender that knows the files of its table."""

    def file_paths(self) -> Collection[str] | None:
        """Return the paths of the table's files, as its log has them, from the last look.

        None if the files do not hold the table's rows as they are: those only delta-rs can tell.
        """
        ...
