"""Watching a table that a process writes now and then: whether it is still the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.identity import SameTable, check_not_restored
from group_coordinator.pipeline.delta.log import LogGone, open_log

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.appender import Appender


class TableWatch:
    """Compares the table of an appender from another thread, which only reads its version.

    The appender compares before each commit; this finds what happens while there is none. On a disk
    it costs some `stat`s a second, in a store one or two HEADs, and of `offsets_topic` one GET,
    every ten seconds.
    """

    def __init__(self, uri: str, appender: Appender, ends_by_restore: bool) -> None:
        self._uri = uri
        self._appender = appender
        self._same = SameTable(uri, appender.table_id, appender.version)
        self._log = open_log(uri) if ends_by_restore else None
        self._at = appender.version

    def check_if_due(self) -> None:
        """Raise TableReplacedError if the table is another one, or was restored.

        Raises TableAway, DeltaError and OSError if that cannot be told now.
        """
        if not self._same.is_due():
            return
        self._at = max(self._at, self._appender.version)
        if self._log is not None:
            self._look_for_restore()
        self._same.check(self._at)

    def _look_for_restore(self) -> None:
        """Read the commits of others behind the appender's version."""
        assert self._log is not None
        while True:
            try:
                actions = self._log.next_commit(self._at)
            except LogGone:
                # The appender reads the table anew.
                return
            if actions is None:
                return
            check_not_restored(self._uri, self._at + 1, actions)
            self._at += 1
