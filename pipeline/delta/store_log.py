"""The log of a table in an object store: each commit is read by one GET and created by one PUT.

A version's commit is created only if it is not there, so it belongs to one writer. A PUT whose
answer is lost may have been done or not, and may still be done later. It is repeated with the same
content until the store answers: either it creates the commit now, or it is refused by what is
there, and the content of that tells whose it is. Each commit has an identifier, so no two are the
same.

A version is free as well once its commit was cleaned up. A clean-up spares what is younger than
`CLEANED_S`. So whoever has seen the log's end within that time knows that the next version was not
cleaned up, and whoever has not asks the log's note of its newest Delta checkpoint, before and after
the commit.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.actions import parse_commit
from group_coordinator.pipeline.delta.commit import CommitStateUnknown
from group_coordinator.pipeline.delta.freshness import Freshness
from group_coordinator.pipeline.delta.log import (
    NOTE,
    LogGone,
    decode_last_checkpoint,
    listed_checkpoint,
)
from group_coordinator.pipeline.delta.object_store import PATIENCE_S, Folder
from group_coordinator.pipeline.delta.table import back_off
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.actions import Action
    from group_coordinator.pipeline.delta.commit import Commit

log = logging.getLogger(__name__)

# No clean-up of a log in a store deletes a commit that is younger, s: `delta.logRetentionDuration`
# of every table of ours is ten minutes and more, and `pipeline.delta.store_trim` takes an hour.
CLEANED_S = 60.0
# The contents of so many commits, each of at most so many bytes, are kept for Delta checkpoints.
_RECENT, _RECENT_BYTES = 1_000, 16_384
# After so many attempts to create a commit its version is read: whether it is there, and whether
# the store answers at all.
_REPEATS = 4
# From this attempt on `back_off` waits up to 250 ms.
_LATE = 7


class StoreLog:
    """The log of the table at `uri`; for one thread."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._log = Folder(f"{uri.rstrip('/')}/_delta_log")
        self._end = Freshness()
        self._is_behind = False
        self._recent: dict[int, bytes] = {}

    @property
    def knows_end(self) -> bool:
        """Whether what `next_commit` and `create` have told is young enough to commit after it."""
        return self._end.is_within(CLEANED_S)

    def next_commit(self, version: int) -> list[Action] | None:
        """Return the actions of the commit after `version`; see `TableLog.next_commit`.

        Raises Failure for an empty one: a store has no half-written objects.
        """
        if self._is_behind:
            self._is_behind = False
            raise LogGone(f"{self._uri} was cleaned up beyond version {version}")
        asked = Freshness.now()
        content = self._log.read(_name(version + 1))
        if content is None and not self.knows_end:
            asked = Freshness.now()
            if self._is_cleaned_beyond(version + 1):
                # The commit and the checkpoint may both have been written since the first look.
                content = self._log.read(_name(version + 1))
                if content is None:
                    raise LogGone(f"{self._uri} no longer has version {version + 1}")
        self._end.renew(asked)
        if content is None:
            return None
        if not content:
            raise Failure(f"version {version + 1} of {self._uri} is empty")
        self._keep(version + 1, content)
        return parse_commit(content)

    def recent(self) -> dict[int, bytes]:
        """The contents of the latest commits that were read or created here, by their versions."""
        return dict(self._recent)

    def create(self, commit: Commit, version: int) -> None:
        """Create the commit of a version; see `TableLog.create`."""
        asked = Freshness.now()
        self._put(commit, version)
        if not self.knows_end and self._may_be_late(version):
            # Where this commit is now, no reader of the table looks; nor must this one.
            self._is_behind = True
            raise CommitStateUnknown(
                f"it is not known whether version {version} of {self._uri} was written: the log "
                "was cleaned up beyond it meanwhile"
            )
        self._end.renew(asked)
        self._keep(version, commit.content)

    def _may_be_late(self, version: int) -> bool:
        try:
            return self._is_cleaned_beyond(version)
        except (OSError, Failure) as error:
            log.warning("whether version %d of %s is late: %s", version, self._uri, error)
            return True

    def _keep(self, version: int, content: bytes) -> None:
        if len(content) <= _RECENT_BYTES:
            self._recent[version] = content
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _put(self, commit: Commit, version: int) -> None:
        name = _name(version)
        may_be_done = False
        until = monotonic() + PATIENCE_S
        for attempt in itertools.count(1):
            try:
                commit.may_stand = True
                self._log.create(name, commit.content)
            except OSError as error:
                if isinstance(error, PermissionError) and not may_be_done:
                    commit.may_stand = False
                    raise
                may_be_done = True
                log.debug("version %d of %s: %s", version, self._uri, error)
                is_told = isinstance(error, (FileExistsError, PermissionError))
                if is_told or attempt % _REPEATS == 0:
                    # A store that is silent is waited for here.
                    if self._is_there(commit, version, error):
                        return
                    if is_told or monotonic() >= until:
                        raise self._unknown(version, error) from error
                back_off(_LATE + attempt)
            else:
                return

    def _is_there(self, commit: Commit, version: int, error: OSError) -> bool:
        """Whether the version is this commit, and not free; raises what `create` raises."""
        try:
            found = self._log.read(_name(version))
        except OSError as unreadable:
            raise self._unknown(version, unreadable) from error
        if found is None or found == commit.content:
            return found is not None
        commit.may_stand = False
        raise FileExistsError(f"version {version} of {self._uri} is another writer's") from error

    def _unknown(self, version: int, error: OSError) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"it is not known whether version {version} of {self._uri} was written: {error}"
        )

    def _is_cleaned_beyond(self, version: int) -> bool:
        """Whether the log may have been cleaned up to this version or a later one.

        That the version before is there proves nothing: it may have come late itself. Raises
        Failure if the table is gone: the PUT of a commit would succeed all the same.
        """
        if version == 0:
            return False
        content = self._log.read(NOTE)
        if content is None:
            # Before the first Delta checkpoint no commit is cleaned up.
            if self._log.read(_name(version - 1)) is None:
                raise Failure(f"{self._uri} has no version {version - 1}: the table is gone")
            return False
        checkpoint = decode_last_checkpoint(content)
        if checkpoint is None:
            # What the note cannot tell the log's listing does.
            checkpoint = listed_checkpoint(each.path for each in self._log.list())
        return checkpoint is not None and checkpoint.version >= version


def _name(version: int) -> str:
    return f"{version:020}.json"
