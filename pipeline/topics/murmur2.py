"""Kafka's hash of keys, for a whole column at once.

Source: Kafka's Utils.murmur2 and Utils.toPositive, as BuiltInPartitioner.partitionForKey uses them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from group_coordinator.coordinator.producer.partitioners import POSITIVE, SEED, M, positive_hash

# Keys longer than this, bytes, are hashed separately. A step over the column hashes four bytes of
# each key, so a single long key would need as many steps as it has words.
_LONG = 256

Array = np.ndarray[Any, Any]


def positive_hashes(keys: pa.Array) -> Array:
    """Return toPositive(murmur2(key)) of each key as an int64 array; 0 if the key is null.

    `keys` is of type `large_binary`.
    """
    count = len(keys)
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, count + 1, keys.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.zeros(count, np.uint32)
    short = lengths <= _LONG
    # Sort the longest first: the keys that still have a word at a step are then the first ones.
    order = np.argsort(-lengths[short], kind="stable")
    places = np.flatnonzero(short)[order]
    hashes[places] = _hash_sorted(data, starts[places], lengths[places])
    for place in np.flatnonzero(~short):
        start = starts[place]
        hashes[place] = positive_hash(data[start : start + lengths[place]].tobytes())
    found: Array = (hashes & POSITIVE).astype(np.int64)
    if keys.null_count:
        found[np.asarray(keys.is_null())] = 0
    return found


def _hash_sorted(data: Array, starts: Array, lengths: Array) -> Array:
    """Return the hashes of keys that are sorted by length, the longest first."""
    hashes: Array = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    longest = int(words[0]) if len(words) else 0
    for step in range(longest):
        having = len(words) - int(np.searchsorted(words[::-1], step, side="right"))
        at = starts[:having] + 4 * step
        word = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        part = hashes[:having]
        part *= np.uint32(M)
        part ^= _mixed(word)
    rest, tails = lengths % 4, starts + 4 * words
    for byte in (2, 1, 0):
        places = np.flatnonzero(rest > byte)
        hashes[places] ^= data[tails[places] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes[rest > 0] *= np.uint32(M)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(M)
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mixed(words: Array) -> Array:
    mixed: Array = words * np.uint32(M)
    mixed ^= mixed >> np.uint32(24)
    mixed *= np.uint32(M)
    return mixed
