"""Kafka's assignors: range, roundrobin, sticky and cooperative-sticky.

`assignor(name)` creates one. `ConsumerPartitionAssignor` is their interface, also for users' own.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.assignors.partition_assignor import (
    ConsumerPartitionAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
)
from group_coordinator.coordinator.consumer.assignors.sticky_assignors import (
    CooperativeStickyAssignor,
    StickyAssignor,
)

__all__ = [
    "ASSIGNORS",
    "ConsumerPartitionAssignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "UnknownAssignor",
    "assignor",
]

_ALL: tuple[type[ConsumerPartitionAssignor], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)
ASSIGNORS = {kind.name: kind for kind in _ALL}


class UnknownAssignor(ValueError):
    """An unknown assignor name; the message lists the known names."""


def assignor(name: str) -> ConsumerPartitionAssignor:
    """Return a new assignor of that name. Raises UnknownAssignor."""
    try:
        return ASSIGNORS[name]()
    except KeyError:
        names = ", ".join(ASSIGNORS)
        raise UnknownAssignor(f"unknown assignor {name!r}: use one of {names}") from None
