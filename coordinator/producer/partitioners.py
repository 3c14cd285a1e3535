"""Partitioners: they choose the partition of a record. A partitioner belongs to one topic.

Source: Kafka's BuiltInPartitioner, RoundRobinPartitioner, Utils.murmur2 and Utils.toPositive;
KIP-480 (sticky). `pipeline.topics.columns` computes the same hash for whole columns of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import unpack_from
from typing import Protocol

from group_coordinator.coordinator.config import ConfigError, nearest

SEED = 0x9747B28C
M = 0x5BD1E995
_MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF


def positive_hash(key: bytes) -> int:
    """Return toPositive(murmur2(key))."""
    length = len(key)
    words = length >> 2
    value = SEED ^ length
    for word in unpack_from(f"<{words}I", key):
        word = word * M & _MASK
        word = (word ^ word >> 24) * M & _MASK
        value = value * M & _MASK ^ word
    if length & 3:
        value = (value ^ int.from_bytes(key[words << 2 :], "little")) * M & _MASK
    value = (value ^ value >> 13) * M & _MASK
    return (value ^ value >> 15) & POSITIVE


# The number of cached hashes of keys: most producers send few distinct keys.
_CACHED_HASHES = 16_384

# Returns a random number in [0, argument). Injected, so that this module stays pure.
RandomIndex = Callable[[int], int]
# A user's partitioner: maps topic, key, value and number of partitions to a partition.
PartitionFunction = Callable[[str, "bytes | None", "bytes | None", int], int]


class Partitioner(Protocol):
    """The partitioner of one topic."""

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:
        """Return the partition of a record, for a topic of `count` partitions."""
        ...

    def on_new_batch(self, partition: int, count: int) -> int:
        """Return the partition of a record without a key that begins a new batch.

        Called if `partition`, the result of the method `partition`, has no open batch with room for
        it.
        """
        ...


class DefaultPartitioner:
    """Kafka's default: partition by the key's hash; without a key, a sticky partition (KIP-480).

    When the sticky partition's batch is full or drained, another partition becomes the sticky one,
    chosen at random. So batches are few and large, and the partitions get equal shares over time.
    """

    def __init__(self, random_index: RandomIndex) -> None:
        self._random_index = random_index
        self._sticky = -1
        self._hash = lru_cache(_CACHED_HASHES)(positive_hash)

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG002
        """Return the partition of the key's hash, or the sticky partition without a key."""
        if key is not None:
            return self._hash(key) % count
        if not 0 <= self._sticky < count:
            self._sticky = self._random_index(count)
        return self._sticky

    def on_new_batch(self, partition: int, count: int) -> int:
        """Choose another partition at random as the sticky one, if there is another; return it."""
        if count > 1:
            self._sticky = (partition + 1 + self._random_index(count - 1)) % count
        return self._sticky


class RoundRobinPartitioner:
    """Kafka's RoundRobinPartitioner: each record goes to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._next = 0

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:  # noqa: ARG002
        """Return the next partition."""
        partition = self._next % count
        self._next = partition + 1
        return partition

    def on_new_batch(self, partition: int, count: int) -> int:  # noqa: ARG002
        """Return `partition`: a new batch does not change the partition."""
        return partition


class CallablePartitioner:
    """A partitioner that calls a function of the user."""

    def __init__(self, topic: str, function: PartitionFunction) -> None:
        self._topic, self._function = topic, function

    def partition(self, key: bytes | None, value: bytes | None, count: int) -> int:
        """Return the function's result; raise ValueError if the topic has no such partition."""
        partition = self._function(self._topic, key, value, count)
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise ValueError(
                f"the partitioner returned {partition!r} for topic {self._topic!r}, which has "
                f"partitions 0 to {count - 1}"
            )
        return partition

    def on_new_batch(self, partition: int, count: int) -> int:  # noqa: ARG002
        """Return `partition`: a new batch does not change the partition."""
        return partition


NAMES = ("default", "round_robin")


def new_partitioner(
    kind: str | PartitionFunction, topic: str, random_index: RandomIndex
) -> Partitioner:
    """Return a new partitioner for a topic: `kind` is a name of NAMES, or the user's function.

    Raises ConfigError for an unknown name.
    """
    if not isinstance(kind, str):
        return CallablePartitioner(topic, kind)
    if kind == "default":
        return DefaultPartitioner(random_index)
    if kind == "round_robin":
        return RoundRobinPartitioner()
    raise ConfigError(f"unknown partitioner {kind!r}{nearest(kind, NAMES)}")
