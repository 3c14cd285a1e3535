"""The log of a user's table that is a topic: its commits, checked for changes of existing rows.

Commits that remove rows, a replaced table and a log that was cleaned up raise errors: later rows
could not get offsets that follow those of earlier rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.pipeline.delta import (
    GoneCheck,
    LogGone,
    SameTable,
    TableAway,
    data_files,
    is_outside,
    open_delta,
    open_files,
    parse_commit,
    read_commit,
    removes_files,
)
from group_coordinator.pipeline.topics.topic_errors import (
    CannotFollow,
    InvalidTable,
    TableReplaced,
    naming_topic,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

# Delta's reader features with which files still hold the table's exact rows.
_HARMLESS = {"timestampNtz", "vacuumProtocolCheck"}


class TopicFile(Struct, frozen=True):
    """A file that a commit added: its path below the root, and its commit's timestamp, ms.

    `partition_values` is JSON, None for a table without partition columns.
    """

    path: str
    partition_values: str | None
    committed_at: int


class TopicCommit(Struct, frozen=True):
    """A commit's files with new rows, in the commit's order."""

    version: int
    added: list[TopicFile]


class TableLog:
    """A reader of one table's commits; for one thread at a time."""

    def __init__(self, uri: str, table_id: str) -> None:
        self._uri, self._table_id = uri, table_id
        self.files: FileSystem = open_files(uri)
        self._check_gone = GoneCheck(self.files)
        self._same = SameTable(uri, table_id)
        # Whether the last `read` returned the previous commit.
        self._is_reading = False

    def read(self, version: int) -> TopicCommit | None:
        """Return the commit of a version, None if it does not exist yet.

        Raises CannotFollow for a commit that a topic cannot follow, and TableReplaced.
        """
        content = read_commit(self.files, version)
        if content is None:
            self._is_reading = False
            self._check_present(version)
            return None
        if not self._is_reading:
            self._check_same(version)
            self._is_reading = True
        return self._commit(version, content)

    def snapshot(self, version: int) -> TopicCommit:
        """Return the files of a version of the table, the oldest first, as one commit.

        `committed_at` is each file's modification time. Raises CannotFollow for a file outside the
        table's folder, and TableReplaced.
        """
        handle = self._open()
        handle.load_as_version(version)
        files = [
            TopicFile(unquote(file.path), _encode_values(file.partition), file.modified_ms)
            for file in data_files(handle)
        ]
        for file in files:
            self._check_inside(version, file.path)
        return TopicCommit(version, files)

    def live_paths(self) -> set[str]:
        """Return the paths of the table's present files, according to its log.

        Raises TableReplaced, DeltaError, OSError.
        """
        return {unquote(file.path) for file in data_files(self._open())}

    def newest_version(self) -> int:
        """Return the table's newest version. Raises TableReplaced, InvalidTable."""
        handle = self._open()
        check_readable(handle)
        return int(handle.version())

    # --- the checks -------------------------------------------------------------------------------

    def _commit(self, version: int, content: bytes) -> TopicCommit:
        actions = parse_commit(content)
        info = next((a.commit_info for a in actions if isinstance(a.commit_info, dict)), {})
        for action in actions:
            if action.meta_data is not None and action.meta_data.get("id") != self._table_id:
                raise self._other_id(action.meta_data.get("id"))
            if action.protocol is not None:
                refused = unreadable(
                    action.protocol.get("minReaderVersion", 1),
                    action.protocol.get("readerFeatures"),
                )
                if refused:
                    raise CannotFollow(
                        f"version {version} of {self._uri} enables {refused}, which a topic cannot "
                        "read: the topic ends before this version"
                    )
            if action.remove is not None and action.remove.data_change:
                operation = info.get("operation", "an unnamed operation")
                raise CannotFollow(
                    f"version {version} of {self._uri} ({operation}) removes or changes rows: "
                    "the topic ends before this version. `topics reindex` restarts it with the "
                    "table's present rows, at new offsets"
                )
        times = [info.get("inCommitTimestamp"), info.get("timestamp")]
        timestamp = next((time for time in times if isinstance(time, int) and time), None)
        added = []
        for add in (action.add for action in actions if action.add is not None):
            if not add.data_change:
                continue
            if add.deletion_vector is not None:
                raise CannotFollow(
                    f"version {version} of {self._uri} adds {add.path!r}, which has a deletion "
                    "vector: the topic ends before it"
                )
            self._check_inside(version, add.file)
            values = _encode_values(add.partition_values)
            committed_at = max(0, timestamp or add.modification_time)
            added.append(TopicFile(add.file, values, committed_at))
        return TopicCommit(version, added)

    def _check_inside(self, version: int, path: str) -> None:
        if is_outside(path):
            raise CannotFollow(
                f"version {version} of {self._uri} adds {path!r}, which lies outside of it: "
                "the topic ends before it"
            )

    def _check_present(self, version: int) -> None:
        """Raise CannotFollow if a missing version was cleaned up; TableReplaced for another table.

        It checks only if `SameTable.is_due`.
        """
        if not self._same.is_due():
            return
        self._check_same(version)
        try:
            self._check_gone(version)
        except LogGone as error:
            raise CannotFollow(
                f"the log of {self._uri} was cleaned up before version {version} was indexed, so "
                "later rows cannot be found (see delta.logRetentionDuration): restart the topic "
                "with `topics reindex`"
            ) from error

    def _check_same(self, version: int) -> None:
        try:
            with naming_topic(self._uri):
                self._same.check(version - 1)
        except TableAway as error:
            raise self._dropped() from error

    def _open(self) -> DeltaTable:
        try:
            handle = open_delta(self._uri)
        except TableNotFoundError as error:
            raise self._dropped() from error
        found = str(handle.metadata().id)
        if found != self._table_id:
            raise self._other_id(found)
        return handle

    def _dropped(self) -> TableReplaced:
        return TableReplaced(f"the Delta table at {self._uri} does not exist any more")

    def _other_id(self, found: object) -> TableReplaced:
        return self._replaced(f"its id is {found}, and was {self._table_id}")

    def _replaced(self, why: str) -> TableReplaced:
        return TableReplaced(
            f"the table at {self._uri} was replaced: {why}. Delete the topic and create it again"
        )


def unreadable(reader_version: int, features: list[str] | None) -> str:
    """Return the features with which files do not hold the table's exact rows; "" for none."""
    if reader_version <= 1:
        return ""
    if features is None:
        return "columnMapping" if reader_version == 2 else f"reader version {reader_version}"
    return ", ".join(sorted(set(features) - _HARMLESS))


def check_readable(handle: DeltaTable) -> None:
    """Raise InvalidTable for a table with features with which files do not hold its exact rows."""
    protocol = handle.protocol()
    refused = unreadable(protocol.min_reader_version, protocol.reader_features)
    if refused:
        raise InvalidTable(
            f"{handle.table_uri} is a table with {refused}, which a topic cannot read"
        )


def first_version(uri: str, handle: DeltaTable) -> int | None:
    """Return the version with which a new topic begins; None means version 0.

    It is None if the log has all commits and none removed a file: then rows are in the order of the
    commits. Otherwise it is the handle's version, and the topic begins with the table's present
    rows.
    """
    files, version = open_files(uri), int(handle.version())
    for number in range(version + 1):
        content = read_commit(files, number)
        if content is None or removes_files(content):
            return version
    return None


def _encode_values(values: dict[str, str | None]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None
