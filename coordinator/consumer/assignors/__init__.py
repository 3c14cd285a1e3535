"""Kafka's assignors: range, roundrobin, sticky and cooperative-sticky.

`assignor(name)` finds one; `Assignor` is what all of them are. They are pure functions of partition
counts and subscriptions, and know neither the group nor its coordinator.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.assignors.base import Assignor, RebalanceProtocol
from group_coordinator.coordinator.consumer.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
)
from group_coordinator.coordinator.consumer.assignors.range import RangeAssignor
from group_coordinator.coordinator.consumer.assignors.roundrobin import RoundRobinAssignor
from group_coordinator.coordinator.consumer.assignors.sticky import StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "UnknownAssignor",
    "assignor",
]

_ALL: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
ASSIGNORS: dict[str, Assignor] = {one.name: one for one in _ALL}


class UnknownAssignor(ValueError):
    """A name that no assignor has; the message lists the names there are."""


def assignor(name: str) -> Assignor:
    """Return the assignor of that name. Raises UnknownAssignor."""
    try:
        return ASSIGNORS[name]
    except KeyError:
        known = ", ".join(ASSIGNORS)
        raise UnknownAssignor(f"no assignor is called {name!r}; there are {known}") from None
