"""The ACLs of a root: an append-only log of added and removed ACLs.

The first ACL creates the table. Without the table, everything is allowed to all principals. With
it, only what an ACL allows, also after all ACLs were removed: removing too many ACLs does not open
the root.

A mark in the table `coordinators` says that the root has ACLs. It distinguishes a lost ACL table
from one that was never created. Without it, a deleted or briefly unavailable folder would allow
everything.

Changes are serialized as in `pipeline.tables.topic_catalogue`: each is the next version of one
transaction identifier. `check` is called after each read of the ACLs and before the commit; it
raises to cancel the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct, structs

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import Appender, TableFollower
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import (
    Absent,
    TableMissing,
    ensure_table,
    has_mark,
    has_table,
    read_table,
    set_mark,
    table_uri,
)
from group_coordinator.schemas.acls import AclBinding, AclFilter, problem_of
from group_coordinator.schemas.rows import AclChange
from group_coordinator.schemas.tables import ACLS, COORDINATORS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_APP_ID = "acls"
# The mark in the table of coordinators that the root has ACLs.
_MARK = "has-acls"


class InvalidAcl(Failure):
    """An invalid ACL; the message gives the reason."""


def add_acls(
    root: str,
    acls: Iterable[AclBinding],
    by: str | None = None,
    check: Callable[[], None] = lambda: None,
    anew: bool = False,
) -> list[AclBinding]:
    """Add ACLs, and return those that were not in force; the first ACL creates the table.

    `by` is the principal that requested the change. Raises InvalidAcl. Raises TableMissing if the
    table is lost, unless the last argument is true, which creates it again.
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
    """Remove and return the ACLs that match one of the filters; raises TableMissing."""

    def matching(now: frozenset[AclBinding]) -> list[AclBinding]:
        return sorted(acl for acl in now if any(each.matches(acl) for each in filters))

    return _change(root, False, matching, by, check) if _is_there(root) else []


def read_acls(root: str) -> tuple[AclBinding, ...] | None:
    """Return the ACLs in force, sorted; None if the root never had an ACL.

    Raises TableMissing, and Failure for a table that has no rows yet.
    """
    watcher = AclWatcher(root)
    return watcher.poll()


def _is_there(root: str) -> bool:
    if has_table(root, ACLS):
        return True
    _check_never_made(root)
    return False


def _check_never_made(root: str) -> None:
    if has_mark(root, COORDINATORS, _MARK):
        raise TableMissing(
            f"the root has ACLs, but {table_uri(root, ACLS)} cannot be found: restore it, or "
            "create it again by `group-coordinator acls add`"
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
        # The version is read before the rows: a change that is committed in between takes this
        # version, and this change is decided again.
        number = appender.last_version(_APP_ID) + 1
        changes = from_arrow(AclChange, read_table(root, ACLS))
        chosen = choose(_after(changes, frozenset()))
        check()
        at = clock_ms()
        rows = [
            AclChange(number, added, **structs.asdict(acl), at=at, changed_by=by) for acl in chosen
        ]
        if not rows or appender.append(to_arrow(ACLS, rows), _APP_ID, number):
            return chosen
        appender.forget()


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
    """The ACLs after a change, sorted, and the change's number."""

    number: int
    acls: tuple[AclBinding, ...]


class AclWatcher:
    """A follower of the ACLs of a root; not thread-safe.

    A poll is one attempt to open the table's next commit or, without a table, its log. The first
    poll without a table checks that the root never had ACLs.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._absent = Absent(root, ACLS)
        self._was_never_made = False
        uri = table_uri(root, ACLS)
        self._table = TableFollower(uri, ACLS.schema.names, _take, self._is_there)

    @property
    def acls(self) -> tuple[AclBinding, ...] | None:
        """The ACLs in force as of the last `poll`, sorted; None if the root never had an ACL."""
        known = self._table.known
        return None if known is None else known.acls

    @property
    def is_replaced(self) -> bool:
        """Whether the table was replaced by another one since `acls` was read."""
        return self._table.is_replaced

    def poll(self) -> tuple[AclBinding, ...] | None:
        """Read new changes, and return the ACLs in force, sorted; None if the root never had one.

        Raises TableMissing, TableReplacedError, Failure for a table that has no rows yet, and the
        errors of reading the table. After an error, `acls` is unchanged.
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
        # The table is created before its first row. This is an error: an empty set of ACLs would
        # deny everything, and clients treat a denial as final.
        raise Failure(
            "the table of ACLs has no rows yet, so the ACLs are unknown: unless another process is "
            "adding one, run `group-coordinator acls add`"
        )
    before = _KnownAcls(-1, ()) if known is None or is_whole else known
    # Changes that are read twice are skipped: a removed ACL would be in force again.
    changes = from_arrow(AclChange, rows)
    new = [change for change in changes if change.number > before.number]
    now = tuple(sorted(_after(new, frozenset(before.acls))))
    number = max([before.number, *(change.number for change in new)])
    # Unchanged ACLs stay the same tuple: callers recognize it by identity and keep what they
    # derived.
    return _KnownAcls(number, known.acls if known is not None and known.acls == now else now)
