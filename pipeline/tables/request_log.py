"""Appending request events to the `requests` table, without a producer's batches and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.delta.open import open_appender
from pipeline.tables.store import ensure_table, table_uri
from schemas.tables import REQUESTS, to_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.messages import RequestEvent


class RequestLog:
    """Appends request events, each call one commit; creates the table if it is missing."""

    def __init__(self, root: str) -> None:
        ensure_table(root, REQUESTS)
        self._appender = open_appender(table_uri(root, REQUESTS))

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the events, in their order; raises AppendConflict."""
        self._appender.append(to_requests(requests))
