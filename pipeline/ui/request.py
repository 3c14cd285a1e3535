"""A request's way: the request, the records and events that it made, its answer, and its batch."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.ui.audit import errors_of, in_words
from group_coordinator.schemas.apis import DECIDED

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.snapshot import RootSnapshot

_ENVELOPE = (
    "request_id, group_id, api, api_version, client_id, client_host, principal, "
    "signature IS NOT NULL AS is_signed, sent_at"
)
_ROWS = 200


class RequestWay(Struct, frozen=True):
    """What the tables know of one request id; each part may be missing.

    `requests` has more than one row if the sender sent it again. `batch` has the number of answers
    and of groups that the coordinator decided at the time of the answer.
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
        """Whether any table knows the request."""
        return bool(self.requests or self.records or self.events or self.answer or self.rejected)

    @property
    def group_id(self) -> str | None:
        """The group that the request is about."""
        for row in (*self.requests, self.answer, *self.records, *self.events):
            if row is not None and row["group_id"] is not None:
                return str(row["group_id"])
        return None

    @property
    def waited_ms(self) -> int | None:
        """From the sender's time of sending to the answer's batch, ms; below 0 by wrong clocks."""
        if self.answer is None or not self.requests:
            return None
        sent, decided = self.requests[0]["sent_at"], self.answer["responded_at"]
        if not isinstance(sent, datetime) or not isinstance(decided, datetime):
            return None
        return round((decided - sent).total_seconds() * 1000)


def follow_request(snapshot: RootSnapshot, request_id: str) -> RequestWay:
    """Collect what the tables say of a request. Raises QueryError."""
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
    return RequestWay(
        request_id=request_id,
        requests=requests,
        what=in_words(requests[0]) if requests else None,
        records=_records(snapshot, request_id),
        events=snapshot.rows(
            'SELECT * FROM group_events WHERE request_id = ? ORDER BY "at" LIMIT ?',
            request_id,
            _ROWS,
        ),
        answer=answer,
        errors=[] if answer is None else errors_of(answer),
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
    """The records that were written for it, those also that compaction has moved out of the log."""
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
    """The column of the row's API alone; its time narrows the files that are read."""
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
