"""The catalogue of topics in the form in which a coordinator decides by it."""

from __future__ import annotations

from msgspec import Struct


class Catalogue(Struct, frozen=True, array_like=True):
    """The topics that exist, and those that were deleted.

    `partitions` has each topic's number of partitions. `deleted` has, for each topic that was ever
    deleted, when that was the last time (ms); the topic may exist again.
    """

    partitions: dict[str, int]
    deleted: dict[str, int] = {}

    @property
    def deleted_at(self) -> int:
        """When a topic was deleted last, ms; 0 if none was."""
        return max(self.deleted.values(), default=0)
