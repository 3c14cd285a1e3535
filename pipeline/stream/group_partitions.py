"""Offsets partitions of many groups, computed in one vectorized sum.

Each of several nodes computes the partition of every row of a commit, to find its own rows. Java's
hash of an ASCII id is a weighted sum of its bytes. If an id is not ASCII or is long, the column's
distinct ids are hashed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from group_coordinator.coordinator.group.partition import partition_for

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.partition import PartitionSet

# The longest id that the vectorized sum allows, bytes.
_LONGEST = 256
# Java's hash: each character times 31 to the power of the number of characters after it, modulo
# 2^32.
_WEIGHTS = np.array([pow(31, after, 1 << 32) for after in range(_LONGEST)], np.uint32)
_MIN_HASH = 1 << 31


def in_partitions(groups: pa.StringArray, partition_set: PartitionSet) -> pa.BooleanArray:
    """Return whether each group belongs to a partition of the set; null belongs to partition 0."""
    wanted = np.zeros(partition_set.of, bool)
    wanted[[each for each in partition_set.partitions if each < partition_set.of]] = True
    return pa.array(wanted[partitions_for(groups, partition_set.of)])


def partitions_for(groups: pa.StringArray, num_partitions: int) -> np.ndarray:
    """Return the partition of each group as `partition_for` does, and 0 for null."""
    found = np.zeros(len(groups), np.int64)
    _, offsets, content = groups.buffers()
    if content is None or not len(groups):
        return found
    ends = np.frombuffer(offsets, np.int32)[groups.offset :][: len(groups) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if lengths.max() > _LONGEST:
        return _one_by_one(groups, num_partitions)
    text = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    if not text.size:
        return found
    if (text >= 0x80).any():
        return _one_by_one(groups, num_partitions)
    after = np.repeat(ends[1:] - ends[0], lengths) - 1 - np.arange(text.size)
    some = np.flatnonzero(lengths)
    hashes = np.add.reduceat(text * _WEIGHTS[after], ends[some] - ends[0], dtype=np.uint32)
    positive = np.abs(hashes.view(np.int32).astype(np.int64))
    # Kafka's Utils.abs, as in `partition_for`.
    positive[positive == _MIN_HASH] = 0
    found[some] = positive % num_partitions
    if groups.null_count:
        found[groups.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _one_by_one(groups: pa.StringArray, num_partitions: int) -> np.ndarray:
    each = groups.dictionary_encode()
    of_text = [partition_for(group, num_partitions) for group in each.dictionary.to_pylist()]
    places = each.indices.fill_null(len(of_text)).to_numpy()
    found: np.ndarray = np.array([*of_text, 0], np.int64)[places]
    return found
