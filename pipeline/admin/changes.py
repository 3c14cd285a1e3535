"""Execution of planned changes: requests to the coordinator, which decides about them."""

from __future__ import annotations

import uuid
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.admin.plans import GroupPlan, OffsetChange
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.schemas.errors import ERROR_NAMES
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    RequestEvent,
    Response,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# The prefix of the request ids of offset changes, which distinguishes them from commits in the
# history. The id of the change follows; all its requests share it.
RESET_PREFIX = "offsets-reset/"
TIMEOUT_S = 30.0
_HINTS = {
    "UNKNOWN_MEMBER_ID": "the group has members; stop them first",
    "NON_EMPTY_GROUP": "the group has members; stop them first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "members of the group consume the topic; stop them first",
    "GROUP_ID_NOT_FOUND": "there is no such group",
    "REQUEST_TIMED_OUT": "the deadline had passed; nothing was changed",
}


class GroupOutcome(Struct, frozen=True):
    """The result of a group's change; `error` says why a part of it was refused, if any."""

    group_id: str
    error: str | None = None


def execute_changes(
    root: str, group_id: str, changes: Sequence[OffsetChange], timeout_s: float = TIMEOUT_S
) -> None:
    """Make the changes of one group.

    Raises Failure with the coordinator's reason if it refuses, and what `execute_plans` raises.
    """
    (outcome,) = execute_plans(root, [GroupPlan(group_id, tuple(changes))], timeout_s)
    if outcome.error is not None:
        raise Failure(outcome.error)


def execute_plans(
    root: str, plans: Sequence[GroupPlan], timeout_s: float = TIMEOUT_S
) -> list[GroupOutcome]:
    """Make the changes of all plans, in one commit of requests; return the outcome of each plan.

    Each group's coordinator may refuse its changes. Raises NoAnswer and what RequestClient raises.
    """
    requests = [request for plan in plans for request in _requests(plan)]
    errors = _send(root, requests, timeout_s)
    return [GroupOutcome(plan.group_id, errors.get(plan.group_id)) for plan in plans]


def delete_groups(
    root: str, group_ids: Sequence[str], timeout_s: float = TIMEOUT_S
) -> list[GroupOutcome]:
    """Delete Empty groups with their offsets; return the outcome of each group.

    Raises what `execute_plans` raises.
    """
    requests = [
        _request(f"admin/{uuid.uuid4()}", each, "delete_groups", DeleteGroupsRequest())
        for each in group_ids
    ]
    errors = _send(root, requests, timeout_s)
    return [GroupOutcome(each, errors.get(each)) for each in group_ids]


def delete_topic(root: str, name: str, check: Callable[[], None] = lambda: None) -> int:
    """Delete a topic and, as Kafka does, its committed offsets; return how many groups have any.

    A coordinator deletes these offsets before it decides a group's next request, so each group is
    sent a DescribeGroups. The topic's own table is first marked as deleted, so that no writer
    appends to it. If the process is killed before the topic leaves the catalogue, the deletion must
    be repeated. `check` is called after each read of the catalogue; it raises to cancel the
    deletion. Raises UnknownTopic.
    """
    # Imported here because these modules import pyarrow, which plans do not need.
    from group_coordinator.pipeline.tables import RequestLog
    from group_coordinator.pipeline.tables import delete_topic as delete_from_catalogue
    from group_coordinator.pipeline.topics import mark_deleted

    def prepare(created: int) -> None:
        check()
        mark_deleted(root, name, created)

    delete_from_catalogue(root, name, prepare)
    query = "SELECT DISTINCT group_id FROM committed_offsets WHERE topic = ? ORDER BY ALL"
    requests = [
        _request(f"admin/{uuid.uuid4()}", group_id, "describe_groups", DescribeGroupsRequest())
        for (group_id,) in Catalog(root).query(query, [name]).rows
    ]
    if requests:
        RequestLog(root).append(requests)
    return len(requests)


def _send(root: str, requests: Sequence[RequestEvent], timeout_s: float) -> dict[str, str]:
    """Send the requests; return the reason of each group with a refused request."""
    from group_coordinator.pipeline.admin.deadline_requests import send_with_deadline

    if not requests:
        return {}
    codes: dict[str, set[int]] = {}
    for answer in send_with_deadline(root, requests, timeout_s):
        codes.setdefault(answer.group_id, set()).update(_codes(answer))
    return {group_id: _reason(group_id, each) for group_id, each in codes.items() if any(each)}


def _codes(answer: Response) -> list[int]:
    topics = getattr(getattr(answer, answer.api), "topics", ())
    codes = [partition.error_code for topic in topics for partition in topic.partitions]
    return codes or [answer.error_code]


def _reason(group_id: str, codes: Iterable[int]) -> str:
    errors = sorted({ERROR_NAMES[code] for code in codes if code})
    hints = "; ".join(dict.fromkeys(_HINTS[name] for name in errors if name in _HINTS))
    why = f" ({hints})" if hints else ""
    return f"group {group_id!r}: the coordinator answered {', '.join(errors)}{why}"


def _requests(plan: GroupPlan) -> Iterator[RequestEvent]:
    change_id = f"{RESET_PREFIX}{uuid.uuid4()}"
    ordered = sorted(plan.changes, key=attrgetter("topic", "partition"))
    commits = [
        OffsetCommitTopic(
            topic,
            tuple(OffsetCommitPartition(each.partition, each.wanted or 0) for each in changes),
        )
        for topic, changes in groupby(
            (each for each in ordered if each.wanted is not None), attrgetter("topic")
        )
    ]
    deletions = [
        OffsetDeleteTopic(topic, tuple(each.partition for each in changes))
        for topic, changes in groupby(
            (each for each in ordered if each.wanted is None), attrgetter("topic")
        )
    ]
    if commits:
        body = OffsetCommitRequest(topics=tuple(commits))
        yield _request(change_id, plan.group_id, "offset_commit", body)
    if deletions:
        gone = OffsetDeleteRequest(tuple(deletions))
        yield _request(f"{change_id}/delete", plan.group_id, "offset_delete", gone)


def _request(request_id: str, group_id: str, api: str, body: Struct) -> RequestEvent:
    fields: dict[str, Any] = {api: body}
    return RequestEvent(
        request_id=request_id,
        group_id=group_id,
        api=api,
        client_id="group-coordinator",
        sent_at=clock_ms(),
        **fields,
    )
