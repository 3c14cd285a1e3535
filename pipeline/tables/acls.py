"""The ACLs of a root: an append-only log of those that were added and removed.

The first ACL makes the table. Without it everything is allowed to everybody; with it only what an
ACL allows, also when all ACLs were removed again, so that nobody opens a root by removing too much.

That a root has ACLs stands in its table of coordinators, too. So a table that cannot be found is no
table that was never made: without this mark whoever deletes a folder, or looks as it is away, would
open the root to everybody.

Changes are in one order, whoever makes them, as in `pipeline.tables.topics`: each is the next
version of one application in Delta's transaction identifiers. `check` is called after each look at
the ACLs, before what was decided by it is committed; it raises to change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.followed import Followed
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.marks import has_mark, set_mark
from group_coordinator.pipeline.tables.store import (
    Absent,
    TableMissing,
    ensure_table,
    has_table,
    read_table,
    table_uri,
)
from group_coordinator.schemas.acls import AclBinding, AclFilter, problem_of
from group_coordinator.schemas.rows import AclChange
from group_coordinator.schemas.tables import ACLS, COORDINATORS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_APP_ID = "acls"
# The transaction of the table of coordinators that says that the root has ACLs.
_MARK = "has-acls"


class InvalidAcl(Failure):
    """An ACL that cannot be; the message says why."""


def add_acls(
    root: str,
    acls: Iterable[AclBinding],
    by: str | None = None,
    check: Callable[[], None] = lambda: None,
    anew: bool = False,
) -> list[AclBinding]:
    """Add ACLs, the first of which makes the table; returns those that were not there before.

    `by` is the principal that asked for it. Raises InvalidAcl, and TableMissing, unless a table
    that is missing is to be made `anew`.
    """
    wanted = list(dict.fromkeys(acls))
    for acl in wanted:
        problem = problem_of(acl)
        if problem is not None:
            raise InvalidAcl(problem)
    if not (anew or has_table(root, ACLS)):
        _check_never_made(root)
    ensure_table(root, ACLS)
    ensure_table(root, COORDINATORS)
    set_mark(root, COORDINATORS, _MARK)
    return _change(root, True, lambda now: [acl for acl in wanted if acl not in now], by, check)


def remove_acls(
    root: str,
    filters: Sequence[AclFilter],
    by: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[AclBinding]:
    """Remove the ACLs that a filter matches; returns them. Raises TableMissing."""

    def matching(now: frozenset[AclBinding]) -> list[AclBinding]:
        return sorted(acl for acl in now if any(each.matches(acl) for each in filters))

    return _change(root, False, matching, by, check) if _is_there(root) else []


def read_acls(root: str) -> tuple[AclBinding, ...] | None:
    """The ACLs in force, in order; None if there never was one.

    Raises TableMissing, and Failure for a table that has no rows yet.
    """
    watcher = AclWatcher(root)
    return watcher.poll()


def _is_there(root: str) -> bool:
    """Return whether there is the table; raises TableMissing if there was one."""
    if has_table(root, ACLS):
        return True
    _check_never_made(root)
    return False


def _check_never_made(root: str) -> None:
    if has_mark(root, COORDINATORS, _MARK):
        raise TableMissing(
            f"the root has ACLs, and {table_uri(root, ACLS)} cannot be found: bring it back, or "
            "make the table anew by `group-coordinator acls add`"
        )


def _change(
    root: str,
    added: bool,
    choose: Callable[[frozenset[AclBinding]], list[AclBinding]],
    by: str | None,
    check: Callable[[], None],
) -> list[AclBinding]:
    appender = Appender(table_uri(root, ACLS))
    while True:
        # The version is read before the rows: a change that is committed between the two reads
        # takes the version, and this one is decided again.
        number = appender.last_version(_APP_ID) + 1
        chosen = choose(_in_force(_read(root)))
        check()
        at = clock_ms()
        rows = [AclChange(number, added, **_columns(acl), at=at, changed_by=by) for acl in chosen]
        if not rows or appender.append(to_arrow(ACLS, rows), _APP_ID, number):
            return chosen
        appender.forget()


def _read(root: str) -> list[AclChange]:
    return from_arrow(AclChange, read_table(root, ACLS))


def _columns(acl: AclBinding) -> dict[str, str]:
    return {name: getattr(acl, name) for name in AclBinding.__struct_fields__}


def _in_force(changes: Iterable[AclChange]) -> frozenset[AclBinding]:
    """The ACLs after all changes that there were."""
    return _after(changes, frozenset())


def _after(changes: Iterable[AclChange], before: frozenset[AclBinding]) -> frozenset[AclBinding]:
    now = set(before)
    for change in sorted(changes, key=lambda each: each.number):
        acl = AclBinding(**{name: getattr(change, name) for name in AclBinding.__struct_fields__})
        if change.added:
            now.add(acl)
        else:
            now.discard(acl)
    return frozenset(now)


class _KnownAcls(Struct, frozen=True):
    """The ACLs after a change: its number, and the ACLs in order."""

    number: int
    acls: tuple[AclBinding, ...]


class AclWatcher:
    """The ACLs of a root as they change; not for two threads at once.

    A look is one attempt to open the table's next commit; while there is no table, one test whether
    its log exists. The first look that finds none makes sure that there never was one.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._absent = Absent(root, ACLS)
        self._was_never_made = False
        uri = table_uri(root, ACLS)
        self._table = Followed(uri, ACLS.schema.names, _take, self._is_there)

    @property
    def acls(self) -> tuple[AclBinding, ...] | None:
        """The ACLs in force as of the last `poll`, in order; None if there never was one."""
        known = self._table.known
        return None if known is None else known.acls

    @property
    def is_replaced(self) -> bool:
        """Whether the table is another one than that of which `acls` tells."""
        return self._table.is_replaced

    def poll(self) -> tuple[AclBinding, ...] | None:
        """Look for changes; returns the ACLs in force, in order, None if there never was one.

        Raises TableMissing, TableReplacedError, Failure for a table that has no rows yet, and what
        reading the table raises; `acls` are as before then.
        """
        self._table.poll()
        return self.acls

    def _is_there(self) -> bool:
        if self._absent.is_there():
            return True
        if not self._was_never_made:
            _check_never_made(self._root)
            self._was_never_made = True
        return False


def _take(known: _KnownAcls | None, rows: pa.Table, is_whole: bool) -> _KnownAcls:
    if is_whole and not rows.num_rows:
        # The table is made before its first row. Without it no client is denied anything, because
        # clients take a denial for final.
        raise Failure(
            "the table of ACLs has no rows yet, so which ACLs are in force is not known: if no "
            "change of them is under way, make one by `group-coordinator acls add`"
        )
    before = _KnownAcls(-1, ()) if known is None or is_whole else known
    # Read a second time, an ACL that was removed since would be in force again.
    changes = from_arrow(AclChange, rows)
    new = [change for change in changes if change.number > before.number]
    now = tuple(sorted(_after(new, frozenset(before.acls))))
    number = max([before.number, *(change.number for change in new)])
    # An unchanged tuple tells whoever keeps something made from it that it still holds.
    return _KnownAcls(number, known.acls if known is not None and known.acls == now else now)
