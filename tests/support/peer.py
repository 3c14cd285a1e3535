"""The other side of a benchmark's members: the coordinator on Spark, or Kafka's broker."""

from __future__ import annotations

from typing import Any, Protocol

from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent

# While a coordinator loads, or the broker has yet to make its offsets topic.
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Peer(Protocol):
    """A coordinator that takes requests, and answers them later in any order."""

    def send(self, events: list[RequestEvent]) -> None:
        """Send requests."""

    def answers(self) -> list[dict[str, Any]]:
        """The answers since the last call: request_id, api, error_code, responded_at, join_group.

        `responded_at` is the time of the batch that answered, None where there are no batches.
        """
