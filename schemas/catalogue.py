"""The catalogue of topics, in the form that a coordinator's decisions use."""

from __future__ import annotations

from msgspec import Struct


class Catalogue(Struct, frozen=True, array_like=True):
    """The topics that exist, and those that were deleted.

    `partitions` maps each topic to its number of partitions. `deleted` maps each topic that was
    ever deleted to the time of its last deletion (ms); the topic may exist again.
    """

    partitions: dict[str, int]
    deleted: dict[str, int] = {}

    @property
    def deleted_at(self) -> int:
        """The time of the newest deletion of a topic (ms), 0 if no topic was deleted."""
        return max(self.deleted.values(), default=0)
