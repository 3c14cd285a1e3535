"""Appending request events to the `requests` table, without a producer's batches and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.delta.open import open_appender
from pipeline.tables.store import ensure_table, table_uri
from schemas.tables import REQUESTS, to_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.delta.appender import Appender
    from schemas.messages import RequestEvent

# The column whose values a file of `requests` names in its tag.
GROUP_ID = "group_id"


def open_requests(uri: str) -> Appender:
    """Return an appender to the table `requests`, whose files name the groups that they are about.

    A coordinator passes over the files of other coordinators' groups. Raises TableNotFoundError.
    """
    return open_appender(uri, tagged=GROUP_ID)


class RequestLog:
    """Appends request events, each call one commit; creates the table if it is missing."""

    def __init__(self, root: str) -> None:
        ensure_table(root, REQUESTS)
        self._appender = open_requests(table_uri(root, REQUESTS))

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the events, in their order; raises AppendConflict."""
        self._appender.append(to_requests(requests))
