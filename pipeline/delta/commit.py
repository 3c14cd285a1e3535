"""What one commit does to a table: files in, files out, transaction identifiers moved.

A commit says which versions of transaction identifiers it stands behind, and is created only after
a version at which they are as it says. Nobody else compares values: another engine's append moves
an identifier whatever it was.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.actions import (
    EXPECTED,
    add_action,
    commit_info,
    encode_commit,
    remove_action,
    txn_action,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from group_coordinator.pipeline.delta.data_files import DataFile


class Move(NamedTuple):
    """A transaction identifier that goes from one version to another, lower or higher.

    `expected` None: it was never set.
    """

    app_id: str
    expected: int | None
    to: int


class Bound(NamedTuple):
    """A transaction identifier that is read only: it is at most at this version, or never set."""

    app_id: str
    at_most: int


class Changes(Struct, frozen=True):
    """What one commit is to do to a table.

    `data_change` False says that the files added have the rows of the files removed. `moves` and
    `bounds` hold at the version after which the commit is created; each identifier is in one of
    them, once.
    """

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    moves: Sequence[Move] = ()
    bounds: Sequence[Bound] = ()
    data_change: bool = True

    @property
    def app_ids(self) -> list[str]:
        """The identifiers that are moved, or read."""
        return [*(each.app_id for each in self.moves), *(each.app_id for each in self.bounds)]

    def are_forbidden(self, versions: Mapping[str, int | None]) -> bool:
        """Whether the versions of the identifiers forbid them."""
        return any(versions[each.app_id] != each.expected for each in self.moves) or any(
            (versions[each.app_id] or 0) > each.at_most for each in self.bounds
        )

    def actions(self) -> list[dict[str, Any]]:
        """Return the actions of the commit."""
        now_ms = clock_ms()
        found = [txn_action(each.app_id, each.to) for each in self.moves]
        found += [remove_action(file, now_ms, self.data_change) for file in self.remove]
        found += [add_action(file, self.data_change) for file in self.add]
        return found


class Commit:
    """The actions of one commit, which is created under the first version that is free.

    `expected`: the version that each transaction identifier it stands behind has at its
    predecessor, None for one that was never set; another one makes the commit void where it comes
    late (`pipeline.delta.late_commits`).

    `may_stand` is whether the commit may be in the table: False until the first attempt to create
    it, and again once another writer's commit was read under the version of that attempt.

    With `flushed` the content is on the disk before it has the version's name, and the name once it
    is created: a loss of power leaves the whole commit or none of it.
    """

    def __init__(
        self,
        actions: Sequence[dict[str, Any]],
        is_blind_append: bool = True,
        flushed: bool = True,
        expected: Mapping[str, int | None] | None = None,
    ) -> None:
        # The identifier makes each content unique, also of two commits that say the same.
        info = commit_info(is_blind_append, str(uuid.uuid4()), len(actions))
        if expected:
            info["commitInfo"][EXPECTED] = dict(expected)
        self.content = encode_commit([info, *actions])
        self.flushed = flushed
        self.may_stand = False
        self.added = {each["add"]["path"] for each in actions if "add" in each}
        self.removed = {each["remove"]["path"] for each in actions if "remove" in each}
