"""Refusal of group requests that ACLs deny, before they become rows.

Without the refusal, a client without any permission could make the coordinator decide any number of
requests. Refusals are counted by API and error, and logged at most once a minute. While the gateway
does not know the ACLs, it refuses nothing: the coordinator authorizes all requests that it gets by
its own ACLs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.coordinator.authorization import denial_of
from group_coordinator.pipeline.gateway.coordinator_link import failed
from group_coordinator.pipeline.quoting import quoted_name
from group_coordinator.schemas.acls import ANONYMOUS
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import JoinGroupResponse, RequestEvent, Response

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.acl_cache import AclCache

log = logging.getLogger(__name__)

_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_LOG_EVERY_S = 60.0
# The limit of principals and APIs in one line of the log.
_MOST_LOGGED = 10


class RefusalCounts:
    """The number of requests that a gateway has refused since its start. Thread-safe.

    They leave no rows, so they cannot be counted from the tables.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = Counter[tuple[str, str]]()

    def count(self, api: str, error: ErrorCode) -> None:
        """Count a request of an API, such as "join_group"."""
        with self._lock:
            self._counts[api, ERROR_NAMES[error]] += 1

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the numbers of refused requests, by API and name of the error."""
        with self._lock:
            return self._counts.copy()


class Refusals:
    """The refusals of a gateway by its ACLs. Thread-safe."""

    def __init__(self, acls: AclCache, refused: RefusalCounts) -> None:
        self._acls = acls
        self._refused = refused
        self._lock = Lock()
        # By principal and API: the number since the last line of the log, and the first group.
        self._unlogged: dict[tuple[str, str], tuple[int, str]] = {}

    def refusal_of(self, event: RequestEvent) -> Response | None:
        """Return the response to a request that the ACLs deny; None if the coordinator decides."""
        authorizer = self._acls.authorizer
        if authorizer is None or not self._acls.is_known or authorizer.allows_event(event):
            return None
        self._count(event)
        denied = failed(event, _DENIED, denial_of(event))
        # As in Kafka, without the member id of the request.
        is_join = event.api == "join_group"
        return replace(denied, join_group=JoinGroupResponse()) if is_join else denied

    async def follow(self) -> None:
        """Log the refusals once a minute until cancelled, and once more at the end."""
        try:
            while True:
                await asyncio.sleep(_LOG_EVERY_S)
                self.log_refused()
        finally:
            self.log_refused()

    def log_refused(self) -> None:
        """Log the requests that were refused since the last line, if any."""
        with self._lock:
            unlogged, self._unlogged = self._unlogged, {}
        if not unlogged:
            return
        most = sorted(unlogged.items(), key=lambda item: -item[1][0])
        parts = [
            f"{count:,} {api} of {quoted_name(name)} (the first of group {quoted_name(group_id)})"
            for (name, api), (count, group_id) in most[:_MOST_LOGGED]
        ]
        if len(most) > _MOST_LOGGED:
            parts.append(f"{sum(count for _, (count, _) in most[_MOST_LOGGED:]):,} of others")
        since = ", ".join(
            f"{count:,} {api}"
            for (api, error), count in sorted(self._refused.counts().items())
            if error == ERROR_NAMES[_DENIED]
        )
        log.warning("refused by ACLs: %s; since the start: %s", "; ".join(parts), since)

    def _count(self, event: RequestEvent) -> None:
        key = event.principal or ANONYMOUS, event.api
        self._refused.count(event.api, _DENIED)
        with self._lock:
            count, first = self._unlogged.get(key, (0, event.group_id))
            self._unlogged[key] = count + 1, first
