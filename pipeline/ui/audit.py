"""The audit of requests that changed offsets or groups, with their senders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from group_coordinator.pipeline.admin.changes import RESET_PREFIX
from group_coordinator.pipeline.ui.forms import choice, page_number, query_of, text
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.errors import ERROR_NAMES

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

PAGE_SIZE = 100
_MAX_PRINCIPALS = 20
# SQL conditions for the shown requests, by choice; the first is the default. A consumer that
# assigns partitions itself sends many requests without a member (the view
# `changes_without_member`), and only moves offsets forward. A reset may do so too; its id has
# `RESET_PREFIX`.
KINDS = {
    "operators": "is_without_member AND (did IS NULL OR did NOT IN ('set forward', 'set again') "
    f"OR starts_with(request_id, '{RESET_PREFIX}'))",
    "memberless": "is_without_member",
    "commits": "api = 'offset_commit'",
    "members": "api IN ('join_group', 'leave_group')",
    "all": f"api IN {tuple(api.name for api in DECIDED.values() if api.is_audited)}",
}
# The effects of requests without a member.
DID = ("set back", "deleted", "created", "removed", "set forward", "set again")
KIND_WORDS = {
    "operators": "Operators' changes",
    "memberless": "All without a member",
    "commits": "Every commit of offsets",
    "members": "Members that joined or left",
    "all": "All of these",
}


class AuditFilter(Struct, frozen=True):
    """The filter of the shown requests. `since` and `until` are UTC, as in a browser's field."""

    kind: str = "operators"
    did: str = ""
    group: str = ""
    who: str = ""
    since: str = ""
    until: str = ""
    page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> AuditFilter:
        """Parse a filter from the query of a URL; invalid values become the defaults."""
        times = {name: query.get(name, "") for name in ("since", "until")}
        return cls(
            kind=choice(query, "kind", KINDS, "operators"),
            did=choice(query, "did", DID),
            group=text(query, "group"),
            who=text(query, "who"),
            page=page_number(query),
            **{name: text if _time(text) else "" for name, text in times.items()},
        )

    def with_(self, **changes: Any) -> dict[str, str]:
        """Return the query of a URL for this filter with some fields changed."""
        return query_of(structs.replace(self, **changes))


class AuditedRequest(Struct, frozen=True):
    """A request with its sender, its content and its response.

    `did` is the effect on offsets, None if it is unknown or a member sent the request. `decided_at`
    is a time of the coordinator's clock, `sent_at` one of the sender's clock. `errors` names the
    errors of the response, of its partitions and members; None without a response.
    """

    request_id: str
    group_id: str | None
    api: str
    what: str
    did: str | None
    principal: str | None
    is_signed: bool
    client_id: str | None
    client_host: str | None
    sent_at: datetime | None
    decided_at: datetime | None
    errors: list[str] | None


class PrincipalCount(Struct, frozen=True):
    """The number of matching requests of one principal with the same effect."""

    principal: str | None
    did: str | None
    requests: int


class AuditPage(Struct, frozen=True):
    """One page of requests, the newest first; `has_more`: whether another page follows.

    `by_principal` counts the requests of all pages by principal and effect, largest count first.
    """

    filter: AuditFilter
    rows: list[AuditedRequest]
    has_more: bool
    by_principal: list[PrincipalCount]


def list_changes(snapshot: RootSnapshot, wanted: AuditFilter, size: int = PAGE_SIZE) -> AuditPage:
    """Return a page of the requests that match the filter. Raises QueryError."""
    clauses, values = [f"({KINDS[wanted.kind]})"], []
    if wanted.did:
        clauses.append("did = ?")
        values.append(wanted.did)
    if wanted.group:
        clauses.append("group_id = ?")
        values.append(wanted.group)
    if wanted.who:
        who = ("principal", "client_id", "client_host")
        clauses.append(f"({' OR '.join(f'contains(lower({name}), lower(?))' for name in who)})")
        values += [wanted.who] * len(who)
    for name, relation in (("since", ">="), ("until", "<=")):
        if getattr(wanted, name):
            clauses.append(f"sent_at {relation} CAST(? AS TIMESTAMP)")
            values.append(getattr(wanted, name))
    named = f"FROM request_effects WHERE {' AND '.join(clauses)} "
    requests = snapshot.rows(
        "SELECT request_id, group_id, api, did, principal, is_signed, "
        "client_id, client_host, sent_at, offset_commit, offset_delete, join_group, leave_group "
        f"{named}"
        "ORDER BY sent_at DESC NULLS LAST, request_id LIMIT ? OFFSET ?",
        *values,
        size + 1,
        (wanted.page - 1) * size,
    )
    by_principal = snapshot.query(
        f"SELECT principal, did, count(*) AS requests {named}"
        "GROUP BY ALL ORDER BY requests DESC, principal, did LIMIT ?",
        *values,
        _MAX_PRINCIPALS,
    ).rows
    shown = requests[:size]
    answers = _responses(snapshot, [row["request_id"] for row in shown])
    return AuditPage(
        wanted,
        [_audited(row, answers) for row in shown],
        len(requests) > size,
        [PrincipalCount(*each) for each in by_principal],
    )


def _responses(snapshot: RootSnapshot, request_ids: list[str]) -> dict[str, dict[str, Any]]:
    if not request_ids:
        return {}
    places = ", ".join("?" * len(request_ids))
    rows = snapshot.rows(
        "SELECT request_id, error, responded_at, offset_commit, offset_delete, leave_group "
        f"FROM responses WHERE request_id IN ({places})",
        *request_ids,
    )
    return {row["request_id"]: row for row in rows}


def _audited(row: dict[str, Any], answers: Mapping[str, dict[str, Any]]) -> AuditedRequest:
    answer = answers.get(row["request_id"])
    return AuditedRequest(
        request_id=row["request_id"],
        group_id=row["group_id"],
        api=row["api"],
        what=describe_request(row),
        did=row["did"],
        principal=row["principal"],
        is_signed=row["is_signed"],
        client_id=row["client_id"],
        client_host=row["client_host"],
        sent_at=row["sent_at"],
        decided_at=None if answer is None else answer["responded_at"],
        errors=None if answer is None else response_errors(answer),
    )


def response_errors(answer: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of all errors in a response, also of partitions and members."""
    names = set() if answer["error"] == "NONE" else {str(answer["error"])}
    for api in ("offset_commit", "offset_delete"):
        for topic in _each(answer.get(api), "topics"):
            names |= {_error(each["error_code"]) for each in _each(topic, "partitions")}
    names |= {_error(each["error_code"]) for each in _each(answer.get("leave_group"), "members")}
    return sorted(names - {"NONE"})


def _error(code: int | None) -> str:
    return "NONE" if code is None else ERROR_NAMES.get(code, str(code))


def _each(body: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list in a body; any part of another writer's row can be null."""
    return [each for each in (body or {}).get(name) or () if each is not None]


def describe_request(row: Mapping[str, Any]) -> str:
    """Describe a request in a few words; `row` is a row of `requests` with its body."""
    api = row["api"]
    body = row.get(api) or {}
    if api == "offset_commit":
        return f"set {_offsets(_each(body, 'topics'))}"
    if api == "offset_delete":
        return "delete the offsets of " + _few(
            f"{topic['name']} {_few(map(str, topic['partitions'] or ()), most=8)}"
            for topic in _each(body, "topics")
        )
    if api == "delete_groups":
        return "delete the group"
    if api == "join_group":
        member = body.get("group_instance_id") or body.get("member_id") or "a new member"
        return f"join as {member}"
    if api == "leave_group":
        return "remove " + _few(
            str(member["member_id"] or member["group_instance_id"])
            for member in _each(body, "members")
        )
    return str(api).replace("_", " ")


def _offsets(topics: Iterable[Mapping[str, Any]]) -> str:
    said = []
    for topic in topics:
        partitions = _each(topic, "partitions")
        each = [f"{p['partition_index']} to {p['committed_offset']}" for p in partitions[:3]]
        more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
        said.append(f"{topic['name']} {', '.join(each)}{more}")
    return _few(said) or "no offsets"


def _few(words: Iterable[str], most: int = 3) -> str:
    listed = list(words)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
