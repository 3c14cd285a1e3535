"""Appending request events to a root: one commit for all that is given at once."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from deltalake import DeltaTable, write_deltalake

from pipeline.store import table_uri
from schemas.messages import RequestEvent
from schemas.tables import REQUESTS, to_requests


class RequestWriter:
    """Appends requests to the `requests` table of a root, which must exist."""

    def __init__(self, root: str) -> None:
        self._handle = DeltaTable(table_uri(root, REQUESTS))

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the requests in one commit, in their order; stamps those that are not."""
        now = time.time_ns() // 1_000_000
        stamped = [
            msgspec.structs.replace(request, sent_at=now) if request.sent_at is None else request
            for request in requests
        ]
        write_deltalake(self._handle, to_requests(stamped), mode="append")
