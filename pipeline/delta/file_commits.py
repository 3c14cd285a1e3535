"""Committing files that were written already, by where their table lies."""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING

from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta.checkpoint import checkpoint
from group_coordinator.pipeline.delta.local_appender import CHECKPOINT_EVERY
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.protocol import writer_features
from group_coordinator.pipeline.delta.rewrite import (
    RewriteConflict,
    commit_elsewhere,
    commit_to_log,
)
from group_coordinator.pipeline.delta.store_trim import checkpoint_in_store, trim_store_log
from group_coordinator.pipeline.delta.table import local_folder, open_delta, refresh
from group_coordinator.pipeline.delta.table_log import open_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta.rewrite import Rewrite

log = logging.getLogger(__name__)

# How many commits a log keeps, however young they are: whoever opens the table lists them, and
# 36,000 take 470 ms. A reader that is further behind reads the table anew.
MOST_COMMITS = 36_000


class FileCommits:
    """Commits to one table: by this package into a plain table, else by delta-rs.

    The table is opened by the first commit.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._log = open_log(uri)

    @cached_property
    def _handle(self) -> DeltaTable:
        return open_delta(self._uri)

    @cached_property
    def _is_plain(self) -> bool:
        return not writer_features(self._handle)

    def commit(self, version: int, rewrite: Rewrite) -> None:
        """Commit after all commits since `version`. It is not forced to the disk.

        Raises RewriteConflict, CommitStateUnknown, and another OSError or DeltaError if the commit
        is certainly not there.
        """
        if self._is_plain:
            try:
                commit_to_log(self._log, self._uri, version, rewrite, flushed=False)
            except RewriteConflict:
                # The table's description may have been changed.
                refresh(self._handle)
                self._is_plain = not writer_features(self._handle)
                raise
            return
        refresh(self._handle)
        # delta-rs looks for conflicts from the handle's version on.
        if self._handle.version() != version:
            raise RewriteConflict(self._handle.table_uri, f"version {version} is not the newest")
        commit_elsewhere(self._handle, rewrite)

    def checkpoint(self, version: int) -> None:
        """Begin to write the Delta checkpoint of a version where one is due.

        What a checkpoint makes superfluous is deleted beyond MOST_COMMITS.
        """
        if version % CHECKPOINT_EVERY == 0:
            background.run("checkpoint", partial(_checkpoint, self._uri, version))


def _checkpoint(uri: str, version: int) -> None:
    folder = local_folder(uri)
    if folder is not None:
        checkpoint(folder, version)
        trim_log(folder, version - MOST_COMMITS)
        return
    checkpoint_in_store(uri, version, cleans_up=False, known={})
    try:
        trim_store_log(uri, version - MOST_COMMITS)
    except OSError as error:
        log.warning("the log of %s was not trimmed: %s", uri, error)
