"""The list of groups, with search, filters, sort orders and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from group_coordinator.pipeline.ui.forms import choice, page_number, query_of, text

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

PAGE_SIZE = 100
# The sort orders of the list, with the tie breakers.
SORTS = {
    "group": "group_id",
    # Groups that need attention come first.
    "worst": "CASE verdict WHEN 'stopped' THEN 1 WHEN 'stalled' THEN 2 WHEN 'lagging' THEN 3 "
    "ELSE 4 END, lag DESC NULLS LAST, group_id",
    "state": "state, group_id",
    "verdict": "verdict NULLS LAST, group_id",
    "members": "num_members DESC, group_id",
    "lag": "lag DESC NULLS LAST, group_id",
    "delay": "lag_seconds DESC NULLS LAST, group_id",
    "since": "since DESC NULLS LAST, group_id",
}
# The most topics that are offered; others can be typed.
_OFFERED_TOPICS = 500


class GroupFilter(Struct, frozen=True, omit_defaults=True):
    """The filter, sort order and page of the list; `q` is a part of the group id, in any case."""

    q: str = ""
    state: str = ""
    verdict: str = ""
    topic: str = ""
    sort: str = "group"
    page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> GroupFilter:
        """Parse a filter from the query of a URL; invalid values become the defaults."""
        given = {name: text(query, name) for name in ("q", "state", "verdict", "topic")}
        return cls(**given, sort=choice(query, "sort", SORTS, "group"), page=page_number(query))

    def with_(self, **changes: Any) -> dict[str, str]:
        """Return the query of a URL for this filter with some fields changed; `page` becomes 1."""
        return query_of(structs.replace(self, **{"page": 1, **changes}))

    @property
    def narrows(self) -> bool:
        """Whether the filter can exclude groups."""
        return bool(self.q or self.state or self.verdict or self.topic)

    def _where(self) -> tuple[str, list[Any]]:
        clauses: list[str] = []
        values: list[Any] = []
        if self.q:
            clauses.append("contains(lower(group_id), lower(?))")
            values.append(self.q)
        for name in ("state", "verdict"):
            if getattr(self, name):
                clauses.append(f"{name} = ?")
                values.append(getattr(self, name))
        if self.topic:
            clauses.append("list_contains(topics, ?)")
            values.append(self.topic)
        return (f"WHERE {' AND '.join(clauses)}" if clauses else ""), values


class GroupList(Struct, frozen=True):
    """One page of the list; `filter.page` is the returned page.

    `found` counts the groups that match the filter; the other counts are of all groups.
    """

    filter: GroupFilter
    rows: list[dict[str, Any]]
    found: int
    total: int
    pages: int
    states: dict[str, int]
    verdicts: dict[str, int]
    topics: list[str]

    @property
    def first(self) -> int:
        """The number of the page's first row, from 1."""
        return (self.filter.page - 1) * PAGE_SIZE + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of the page's last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def list_groups(snapshot: RootSnapshot, wanted: GroupFilter) -> GroupList:
    """Return the page of the list that the filter requests, or the last existing one."""
    where, values = wanted._where()
    ((found,),) = snapshot.query(f"SELECT count(*) FROM group_overview {where}", *values).rows
    pages = max(1, -(-found // PAGE_SIZE))
    shown = structs.replace(wanted, page=min(wanted.page, pages))
    rows = snapshot.rows(
        f"SELECT * FROM group_overview {where} ORDER BY {SORTS[shown.sort]} LIMIT ? OFFSET ?",
        *values,
        PAGE_SIZE,
        (shown.page - 1) * PAGE_SIZE,
    )
    states = _counts(snapshot, "state")
    return GroupList(
        filter=shown,
        rows=rows,
        found=found,
        total=sum(states.values()),
        pages=pages,
        states=states,
        verdicts=_counts(snapshot, "verdict"),
        topics=[
            str(topic)
            for (topic,) in snapshot.query(
                "SELECT topic FROM held_topics ORDER BY topic LIMIT ?", _OFFERED_TOPICS
            ).rows
        ],
    )


def _counts(snapshot: RootSnapshot, column: str) -> dict[str, int]:
    query = (
        f"SELECT {column}, count(*) FROM group_overview WHERE {column} IS NOT NULL "
        f"GROUP BY {column} ORDER BY count(*) DESC, {column}"
    )
    return dict(snapshot.query(query).rows)
