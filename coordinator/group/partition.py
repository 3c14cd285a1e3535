"""The offsets partition of a group: a hash of its id, as in Kafka."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from msgspec import Struct


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: a signed 32-bit polynomial in 31 over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=65536)
def partition_for(group_id: str, num_partitions: int) -> int:
    """Return a group's offsets partition, as GroupCoordinatorService.partitionFor does."""
    value = java_string_hash(group_id)
    # Kafka's Utils.abs maps Integer.MIN_VALUE, which has no positive counterpart, to 0.
    return 0 if value == -(1 << 31) else abs(value) % num_partitions


class PartitionSet(Struct, frozen=True):
    """A set of offsets partitions, out of `of` partitions in all."""

    partitions: Collection[int]
    of: int
