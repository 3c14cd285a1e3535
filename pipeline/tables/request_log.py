"""Files and appends of the table `requests`, without a producer's batches and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import Appender, open_store, write_rows
from group_coordinator.pipeline.tables.request_lanes import in_lanes
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.schemas.tables import REQUESTS, to_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from group_coordinator.pipeline.delta import DataFile
    from group_coordinator.schemas.messages import RequestEvent


def open_requests(uri: str) -> Appender:
    """Return an appender to the table `requests`; raises TableNotFoundError.

    Its files are tagged with their offsets partitions (`pipeline.tables.request_lanes`).
    """
    return Appender(uri, lay_out=in_lanes)


def write_request_file(uri: str, rows: pa.Table) -> DataFile:
    """Write rows of `requests` as a file that no commit names yet. Raises OSError."""
    return write_rows(open_store(uri), in_lanes(rows), {})


class RequestLog:
    """A writer of request events, one commit for each call; it creates a missing table."""

    def __init__(self, root: str) -> None:
        ensure_table(root, REQUESTS)
        self._appender = open_requests(table_uri(root, REQUESTS))

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the events in the given order; raises AppendConflict."""
        self._appender.append(to_requests(requests))
