"""The peer of a benchmark's members: the coordinator on Spark, or Kafka's broker."""

from __future__ import annotations

from typing import Any, Protocol

from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent

# While a coordinator loads, or the broker creates its offsets topic.
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Peer(Protocol):
    """A coordinator that accepts requests, and answers them later in any order."""

    def send(self, events: list[RequestEvent]) -> None:
        """Send requests."""

    def answers(self) -> list[dict[str, Any]]:
        """Return the responses since the last call.

        Each has request_id, api, error_code, responded_at and join_group. `responded_at` is the
        time of the batch that answered, None without batches.
        """
