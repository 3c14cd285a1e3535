"""What a log tells of a table's files and of its writers' transactions, as its actions have it.

Neither Arrow nor delta-rs is imported: commands that only ask DuckDB read logs by this too.
"""

from __future__ import annotations

from msgspec import Struct


class LiveFile(Struct, frozen=True, rename="camel"):
    """A file of a table, as its add action has it; `stats` is JSON. Times in ms."""

    path: str
    size: int = 0
    modification_time: int = 0
    partition_values: dict[str, str | None] = {}
    stats: str | None = None


class RemovedFile(Struct):
    """A file that a table has no more."""

    path: str


class Transaction(Struct, rename="camel"):
    """The version that an application has written."""

    app_id: str
    version: int


class FileAction(Struct, rename="camel"):
    """One line of a commit; at most one field is set."""

    add: LiveFile | None = None
    remove: RemovedFile | None = None
    txn: Transaction | None = None
