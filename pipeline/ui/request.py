"""A request with its records, group events, response and micro-batch."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.ui.audit import describe_request, response_errors
from group_coordinator.schemas.apis import DECIDED

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

_ENVELOPE = (
    "request_id, group_id, api, api_version, client_id, client_host, principal, "
    "signature IS NOT NULL AS is_signed, sent_at"
)
_ROWS = 200


class RequestTrace(Struct, frozen=True):
    """The rows of one request id in all tables; each part may be missing.

    `requests` has several rows if the client sent the request again. `batch` has the number of
    responses with the same time as this response, and of their groups.
    """

    request_id: str
    requests: list[dict[str, Any]]
    what: str | None
    records: list[dict[str, Any]]
    events: list[dict[str, Any]]
    answer: dict[str, Any] | None
    errors: list[str]
    batch: dict[str, Any] | None
    rejected: list[dict[str, Any]]

    @property
    def is_known(self) -> bool:
        """Whether any table has a row of the request."""
        return bool(self.requests or self.records or self.events or self.answer or self.rejected)

    @property
    def group_id(self) -> str | None:
        """The group of the request; None if it is unknown."""
        for row in (*self.requests, self.answer, *self.records, *self.events):
            if row is not None and row["group_id"] is not None:
                return str(row["group_id"])
        return None

    @property
    def waited_ms(self) -> int | None:
        """The time from sending to the response's batch, ms; negative if clocks differ."""
        if self.answer is None or not self.requests:
            return None
        sent, decided = self.requests[0]["sent_at"], self.answer["responded_at"]
        if not isinstance(sent, datetime) or not isinstance(decided, datetime):
            return None
        return round((decided - sent).total_seconds() * 1000)


def trace_request(snapshot: RootSnapshot, request_id: str) -> RequestTrace:
    """Read the rows of a request from all tables. Raises QueryError."""
    requests = snapshot.rows(
        f"SELECT {_ENVELOPE} FROM requests WHERE request_id = ? ORDER BY sent_at LIMIT ?",
        request_id,
        _ROWS,
    )
    for row in requests:
        row.update(_body(snapshot, "requests", row))
    answers = snapshot.rows(
        "SELECT request_id, group_id, api, error, error_code, error_message, responded_at "
        "FROM responses WHERE request_id = ? LIMIT 1",
        request_id,
    )
    answer, batch = None, None
    if answers:
        answer = answers[0] | _body(snapshot, "responses", answers[0])
        batch = snapshot.rows(
            "SELECT count(*) AS answers, count(DISTINCT group_id) AS groups FROM responses "
            "WHERE responded_at = ?",
            answer["responded_at"],
        )[0]
    return RequestTrace(
        request_id=request_id,
        requests=requests,
        what=describe_request(requests[0]) if requests else None,
        records=_records(snapshot, request_id),
        events=snapshot.rows(
            "SELECT * FROM group_events WHERE request_id = ? ORDER BY changed_at LIMIT ?",
            request_id,
            _ROWS,
        ),
        answer=answer,
        errors=[] if answer is None else response_errors(answer),
        batch=batch,
        rejected=snapshot.rows(
            "SELECT rejected_at, reason, event FROM rejected_requests WHERE contains(event, ?) "
            "LIMIT 5",
            request_id,
        )
        if not requests
        else [],
    )


def _records(snapshot: RootSnapshot, request_id: str) -> list[dict[str, Any]]:
    columns = (
        'partition, record_type, group_id, "timestamp", log_offset, topic, topic_partition, '
        "offset_commit, group_metadata, reason"
    )
    return snapshot.rows(
        f"SELECT {columns} FROM offsets_topic WHERE request_id = $1 UNION "
        f"SELECT {columns} FROM offsets_history WHERE request_id = $1 "
        "ORDER BY log_offset, topic, topic_partition LIMIT 200",
        request_id,
    )


def _body(snapshot: RootSnapshot, table: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the column of a row's API, its body. The row's time limits the files to read."""
    api, time = row["api"], "sent_at" if table == "requests" else "responded_at"
    if api not in DECIDED:
        return {}
    columns = snapshot.query(f"SELECT * FROM {table} LIMIT 0").columns
    if api not in columns:
        return {}
    at = row[time]
    found = snapshot.rows(
        f"SELECT {api} FROM {table} WHERE request_id = ? AND {time} IS NOT DISTINCT FROM ? LIMIT 1",
        row["request_id"],
        at,
    )
    return found[0] if found else {}
