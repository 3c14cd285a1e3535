"""Kafka's murmur2 hash of one key. `pipeline.topics.murmur2` hashes whole columns.

Source: Kafka's Utils.murmur2 and Utils.toPositive.
"""

from __future__ import annotations

from struct import unpack_from

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
