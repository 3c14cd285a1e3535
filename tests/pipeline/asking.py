"""One request of one client, and its response."""

from __future__ import annotations

from group_coordinator.pipeline.client import ProducerSettings, RequestClient
from group_coordinator.schemas.messages import RequestEvent, Response


def ask(root: str, request: RequestEvent, timeout_s: float = 30.0) -> Response:
    with RequestClient(root, ProducerSettings(linger_ms=0)) as client:
        return client.ask(request, round(timeout_s * 1000))
