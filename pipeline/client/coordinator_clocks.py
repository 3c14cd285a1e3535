"""Clocks of the groups' coordinators, estimated from the times in their answers.

A request's deadline is a time of the deciding coordinator's clock, which may differ from the
sender's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.schemas.messages import FindCoordinatorRequest, RequestEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.schemas.messages import Response

# The time within which a signed request may be decided, ms. It is longer than a sender waits for
# the answer, and than heartbeats wait for the first answer of a silent coordinator. It is shorter
# than the deduplication window of request ids (request.dedup.window.ms).
SIGNED_FOR_MS = 50_000
# The maximum number of groups with a known clock. Beyond it, all are forgotten and learned again.
_MAX_CLOCKS = 131_072


def time_request(event: RequestEvent, request_id: str) -> RequestEvent:
    """Return a request for the time of the coordinator that decides `event`; it changes nothing."""
    return RequestEvent(
        request_id=request_id,
        group_id=event.group_id,
        api="find_coordinator",
        client_id=event.client_id,
        client_host=event.client_host,
        principal=event.principal,
        find_coordinator=FindCoordinatorRequest(),
    )


class CoordinatorClocks:
    """The estimated clock of each group's coordinator; thread-safe.

    The estimate is the time of the coordinator's last answer, plus the time that has passed since
    by `since_boot_ms`. It lags the coordinator's clock by the latency of that answer. It is ahead
    only if the coordinator's clock was set back since.
    """

    def __init__(self) -> None:
        # By group: the least lead of its coordinator's clock over `since_boot_ms`, ms.
        self._lead_ms: dict[str, int] = {}

    def on_responses(self, responses: Iterable[Response]) -> None:
        """Update the clocks from the times of answers."""
        now = since_boot_ms()
        for response in responses:
            if response.responded_at is not None:
                if len(self._lead_ms) >= _MAX_CLOCKS and response.group_id not in self._lead_ms:
                    self._lead_ms.clear()
                self._lead_ms[response.group_id] = response.responded_at - now

    def at(self, group_id: str, since_boot: int) -> int | None:
        """Convert a time of `since_boot_ms` to the coordinator's clock; None while unknown."""
        lead_ms = self._lead_ms.get(group_id)
        return None if lead_ms is None else lead_ms + since_boot
