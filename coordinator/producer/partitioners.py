"""Which partition of its topic a record goes to. One partitioner is for one topic.

Source: Kafka's BuiltInPartitioner and RoundRobinPartitioner; KIP-480 (sticky).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from group_coordinator.coordinator.config import ConfigError, nearest
from group_coordinator.coordinator.producer.murmur2 import positive_hash

# Of so many keys the partition is remembered: producers send few keys often.
_REMEMBERED = 16_384

# A number at random below the given one; the caller's randomness.
Choose = Callable[[int], int]
# A partitioner of one's own: topic, key, value and number of partitions give the partition.
Chooser = Callable[[str, "bytes | None", "bytes | None", int], int]


class Partitioner(Protocol):
    """Chooses the partitions of one topic."""

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:
        """Return the partition of a record, of so many partitions."""
        ...

    def of_new_batch(self, found: int, count: int) -> int:
        """Return where a record goes whose partition, `found`, has no batch with room for it.

        Asked for a record without a key.
        """
        ...


class DefaultPartitioner:
    """A record with a key goes where its hash says, one without where the batch is that is filled.

    When a batch is full or was taken to be written, the next begins in another partition, at
    random. So few large batches are written, and all partitions come to their share.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._sticky = -1
        self._hash = lru_cache(_REMEMBERED)(positive_hash)

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG002
        """Return the partition of a record."""
        if key is not None:
            return self._hash(key) % count
        if not 0 <= self._sticky < count:
            self._sticky = self._choose(count)
        return self._sticky

    def of_new_batch(self, found: int, count: int) -> int:
        """Go on to another partition."""
        if count > 1:
            self._sticky = (found + 1 + self._choose(count - 1)) % count
        return self._sticky


class RoundRobinPartitioner:
    """Each record goes to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._next = 0

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG002
        """Return the next partition."""
        found = self._next % count
        self._next = found + 1
        return found

    def of_new_batch(self, found: int, count: int) -> int:  # noqa: ARG002
        """Stay with what was found."""
        return found


class CallablePartitioner:
    """A function of the user's chooses."""

    def __init__(self, topic: str, chooser: Chooser) -> None:
        self._topic, self._chooser = topic, chooser

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:
        """Return what the function says. Raises ValueError for what is no partition."""
        found = self._chooser(self._topic, key, value, count)
        if not isinstance(found, int) or not 0 <= found < count:
            raise ValueError(
                f"the partitioner said {found!r}: topic {self._topic!r} has {count} partitions"
            )
        return found

    def of_new_batch(self, found: int, count: int) -> int:  # noqa: ARG002
        """Stay with what was found."""
        return found


NAMES = ("default", "round_robin")


def new_partitioner(kind: str | Chooser, topic: str, choose: Choose) -> Partitioner:
    """Make a topic's partitioner, named or a function. Raises ConfigError for an unknown name."""
    if not isinstance(kind, str):
        return CallablePartitioner(topic, kind)
    if kind == "default":
        return DefaultPartitioner(choose)
    if kind == "round_robin":
        return RoundRobinPartitioner()
    raise ConfigError(f"unknown partitioner {kind!r}{nearest(kind, NAMES)}")
