"""Creating commits in the log of a table in a local folder.

In Delta's protocol a version belongs to the writer that creates its file, and only one can. The
content is written beside the log first and then linked to the version's name: readers never see a
part of a commit, and the link fails if the version is taken.

A link that fails may have been made all the same: a disk reports EIO after it, a network file
system sends it again and finds its own. So after an error the commit is read, and its content tells
whose it is.

A version is free as well once its commit was cleaned up. A writer that stood still between its look
at the log and its link, while others went on and the log was cleaned up beyond it, creates a commit
that no reader sees. A clean-up keeps the newest Delta checkpoint's version and all later ones. So a
commit is certainly in the log if the newest checkpoint, as noted *after* the link, is older. That
its predecessor is there proves nothing: it may be late itself, of another writer that stood still.
Where the checkpoint is not older, the table is asked whether it has the files of the commit.
Transactions do not tell: another writer may have come to the same version.

A commit says which versions of transaction identifiers it depends on. So whoever finds it late can
tell whether somebody came between (`pipeline.delta.late_commits`).
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta.actions import EXPECTED, commit_info, encode_commit
from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.flush import flush, opened_to_flush
from group_coordinator.pipeline.delta.log import commit_path, last_checkpoint
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

# With these errors a link was not made. After any other, such as EIO, it may have been.
_NOT_LINKED = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EMLINK,
    errno.ENOENT,
    errno.ENOSPC,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EROFS,
}


class CommitStateUnknown(OSError):
    """Whether a commit is in the table could not be found out; its data files must stay.

    Source of the name: Apache Iceberg's CommitStateUnknownException.
    """


class NotFlushed(OSError):
    """A commit is in the log, and may not outlive a loss of power.

    What the disk has of it is not known, and a second fsync may say that all is well (fsyncgate):
    the log takes no more commits of this writer until the table is opened anew.
    """


class Commit:
    """The actions of one commit, which is created under the first version that is free.

    `may_stand` is whether the commit may be in the table: False until the first attempt to create
    it, and again once another writer's commit was read under the version of that attempt.

    With `flushed` the content is on the disk before it has the version's name, and the name when
    `create` returns: a loss of power leaves the whole commit or none of it.
    """

    def __init__(
        self, actions: Sequence[dict[str, Any]], is_blind_append: bool, flushed: bool = True
    ) -> None:
        # The identifier makes each content unique, also of two commits that say the same.
        self._info = commit_info(is_blind_append, str(uuid.uuid4()), len(actions))
        self._actions = actions
        self._flushed = flushed
        self.may_stand = False
        self.expect({})

    def expect(self, versions: Mapping[str, int | None]) -> None:
        """Say which version each transaction identifier has at the predecessor, None for none.

        Not while the commit `may_stand`: its content tells whose it is.
        """
        if versions:
            self._info["commitInfo"][EXPECTED] = dict(versions)
        self.content = encode_commit([self._info, *self._actions])

    def create(self, folder: Path, version: int) -> None:
        """Create the commit of a version; `folder` is the log's.

        Raises FileExistsError if the version is another writer's, CommitStateUnknown if it may be
        this commit or may not or if the log was cleaned up beyond it meanwhile, NotFlushed, and
        another OSError if this commit is certainly not there.
        """
        if self._flushed:
            with opened_to_flush(folder) as force:
                target = self._link(folder, version)
                try:
                    force()
                except OSError as error:
                    raise NotFlushed(
                        f"{target} may not outlive a loss of power: {error}"
                    ) from error
        else:
            self._link(folder, version)
        if _may_be_cleaned_beyond(folder, version) and not self._is_in_table(folder.parent):
            raise CommitStateUnknown(
                f"it is not known whether version {version} of {folder.parent} was written: the "
                "log was cleaned up beyond it meanwhile"
            )

    def _link(self, folder: Path, version: int) -> Path:
        """Link the commit to its version's name; return that path. Raises as `create` does."""
        target = commit_path(folder, version)
        partial = write_partial(folder, self.content, self._flushed)
        try:
            self.may_stand = True
            os.link(partial, target)
        except OSError as error:
            self._settle(target, error)
        finally:
            try:
                partial.unlink()
            except OSError as error:
                # The link alone decides whether the commit stands.
                log.warning("%s is left behind: %s", partial, error)
        return target

    def _is_in_table(self, table: Path) -> bool:
        """Whether the table has what this commit has added; False where that cannot be told.

        Files tell, since no other commit adds them. Of one without files nothing tells.
        """
        added = {each["add"]["path"] for each in self._actions if "add" in each}
        removed = {each["remove"]["path"] for each in self._actions if "remove" in each}
        if not added and not removed:
            return False
        try:
            there = {file.path for file in data_files(open_delta(str(table)))}
        except (DeltaError, OSError) as error:
            log.warning("whether a commit is in %s cannot be asked: %s", table, first_line(error))
            return False
        return not added.isdisjoint(there) if added else removed.isdisjoint(there)

    def _settle(self, target: Path, error: OSError) -> None:
        """Return if the target is this commit; raise what `create` raises if it is not."""
        try:
            found = target.read_bytes()
        except OSError as unreadable:
            if error.errno in _NOT_LINKED and unreadable.errno == errno.ENOENT:
                self.may_stand = False
                raise error from None
            raise CommitStateUnknown(
                f"it is not known whether version {int(target.stem)} of {target.parent.parent} was "
                f"written: {error}"
            ) from error
        if found != self.content:
            self.may_stand = False
            raise FileExistsError(f"{target} is another writer's") from error


def _may_be_cleaned_beyond(folder: Path, version: int) -> bool:
    """Whether the log may have been cleaned up to this version or a later one."""
    try:
        checkpoint = last_checkpoint(folder)
        if checkpoint is None:
            return version > 0 and not commit_path(folder, version - 1).exists()
    except OSError as error:
        log.warning("whether version %d of %s is late: %s", version, folder.parent, error)
        return True
    return checkpoint.version >= version


def write_partial(folder: Path, content: bytes, flushed: bool = False) -> Path:
    """Write a file beside the log's own, under a name that no reader of the log looks at."""
    partial = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        partial.write_bytes(content)
        if flushed:
            flush(partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial
