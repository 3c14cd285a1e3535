"""Reading the catalogue of topics."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from group_coordinator.pipeline.tables.topic_catalogue import counts_of, read_newest


def read_counts(root: str) -> dict[str, int] | None:
    """Return each topic's number of partitions; None if there is no catalogue."""
    try:
        return counts_of(read_newest(root))
    except TableNotFoundError:
        return None
