"""The clocks of groups' coordinators, as their answers tell them.

A deadline is by the clock of the coordinator that decides, whatever the sender's says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.schemas.messages import FindCoordinatorRequest, RequestEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.schemas.messages import Response

# For how long a signed request may be decided: longer than its sender waits for the answer, or for
# the first one of a silent coordinator to heartbeats that wait; shorter than coordinators remember
# its id (request.dedup.window.ms).
SIGNED_FOR_MS = 50_000
# Groups whose coordinators' clocks are known at once; beyond, they are asked for the time again.
_MOST_CLOCKS = 131_072


def time_question(event: RequestEvent, request_id: str) -> RequestEvent:
    """The question for the time of the coordinator that decides a request; it changes nothing."""
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
    """Carries on by `since_boot_ms` what each group's last answer told; for any thread.

    What is known lags a coordinator's clock by the time that its answer took. It is never ahead of
    that clock, unless the clock was set back since.
    """

    def __init__(self) -> None:
        # By group: how far its coordinator's clock is ahead of `since_boot_ms`, at least, in ms.
        self._ahead: dict[str, int] = {}

    def hear(self, answers: Iterable[Response]) -> None:
        """Take note of the times of answers."""
        now = since_boot_ms()
        for answer in answers:
            if answer.responded_at is not None:
                if len(self._ahead) >= _MOST_CLOCKS and answer.group_id not in self._ahead:
                    self._ahead.clear()
                self._ahead[answer.group_id] = answer.responded_at - now

    def at(self, group_id: str, since_boot: int) -> int | None:
        """A time of `since_boot_ms` by the clock of a group's coordinator; None: not known yet."""
        ahead = self._ahead.get(group_id)
        return None if ahead is None else ahead + since_boot
