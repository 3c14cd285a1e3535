"""Kafka's assignors: range, roundrobin, sticky and cooperative-sticky.

`assignor(name)` makes one; `ConsumerPartitionAssignor` is what all of them are, as is a user's own.
They know neither the group nor its coordinator.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.assignors.partition_assignor import (
    ConsumerPartitionAssignor,
    RebalanceProtocol,
)
from group_coordinator.coordinator.consumer.assignors.stateless_assignors import (
    RangeAssignor,
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
ASSIGNORS = {one.name: one for one in _ALL}


class UnknownAssignor(ValueError):
    """A name that no assignor has; the message lists the names there are."""


def assignor(name: str) -> ConsumerPartitionAssignor:
    """Return a new assignor of that name. Raises UnknownAssignor."""
    try:
        return ASSIGNORS[name]()
    except KeyError:
        known = ", ".join(ASSIGNORS)
        raise UnknownAssignor(f"no assignor is called {name!r}; there are {known}") from None
