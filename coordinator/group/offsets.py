"""A group's committed offsets; the cost of a commit depends on its size, not on the offsets held.

The state of a group is stored after every batch, and encoding all its offsets would dominate the
cost, although a commit reads no offset. So they are kept in runs, as in a log-structured merge
tree: each run is packed once, the oldest run comes first, and a later run wins. The offsets
committed in a batch become a new run, and two runs are merged while the newer is at least half as
large as the older. So n offsets have at most log2(n) runs, and an offset is repacked about log2(n)
times. Reading or deleting an offset unpacks all of them, once per batch.

Only copying the state's bytes takes time in proportion to the offsets held. An unchanged run is a
view of the bytes that were read, so it is copied only once.
"""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView
from functools import cached_property

import msgspec
from msgspec import Raw, Struct, field

from group_coordinator.schemas.records import OffsetCommitValue

# Topic -> partition -> committed offset.
Topics = dict[str, dict[int, OffsetCommitValue]]
# The number of offsets, and their MessagePack: topic -> partition -> fields of the offset.
Run = tuple[int, memoryview]
# Offset, leader epoch, metadata, commit timestamp, expire timestamp: names would double the size.
_Fields = tuple[int, int, str, int, int]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, dict[int, _Fields]]).decode
_decode_raw = msgspec.msgpack.Decoder(dict[str, dict[int, Raw]]).decode


class Offsets(Struct, array_like=True, dict=True, eq=False):
    """Committed offsets by topic and partition; every topic has at least one partition.

    `runs` are the packed offsets, `fresh` those committed since the last `pack`.
    """

    runs: list[Run] = field(default_factory=list)
    fresh: Topics = field(default_factory=dict)

    @cached_property
    def topics(self) -> Topics:
        """All committed offsets; callers must not change the dictionary."""
        if not self.runs:
            return self.fresh
        topics: Topics = {}
        for _, run in self.runs:
            for topic, partitions in _decode(run).items():
                values = {index: OffsetCommitValue(*fields) for index, fields in partitions.items()}
                topics.setdefault(topic, {}).update(values)
        for topic, fresh in self.fresh.items():
            topics.setdefault(topic, {}).update(fresh)
        return topics

    def __bool__(self) -> bool:
        return bool(self.runs or self.fresh)

    def __eq__(self, other: object) -> bool:
        return self.topics == (other.topics if isinstance(other, Offsets) else other)

    def __getitem__(self, topic: str) -> dict[int, OffsetCommitValue]:
        return self.topics[topic]

    def get(self, topic: str) -> dict[int, OffsetCommitValue]:
        """Return the topic's committed offsets by partition; empty if it has none."""
        return self.topics.get(topic, {})

    def items(self) -> ItemsView[str, dict[int, OffsetCommitValue]]:
        """Return the committed offsets by topic."""
        return self.topics.items()

    def values(self) -> ValuesView[dict[int, OffsetCommitValue]]:
        """Return each topic's committed offsets by partition."""
        return self.topics.values()

    def commit(self, topic: str, partition: int, value: OffsetCommitValue) -> None:
        """Set the committed offset of a partition."""
        self.fresh.setdefault(topic, {})[partition] = value
        unpacked: Topics | None = self.__dict__.get("topics")
        if unpacked is not None and unpacked is not self.fresh:
            unpacked.setdefault(topic, {})[partition] = value

    def drop(self, topic: str, partition: int) -> bool:
        """Delete a partition's committed offset; return False if it has none."""
        topics = self.topics
        partitions = topics.get(topic)
        if partitions is None or partitions.pop(partition, None) is None:
            return False
        if not partitions:
            del topics[topic]
        self.runs, self.fresh = [], topics
        return True

    def pack(self) -> None:
        """Pack the offsets committed since the last call into a run."""
        if not self.fresh:
            return
        runs = self.runs
        runs.append(_pack(self.fresh))
        self.fresh = {}
        while len(runs) > 1 and 2 * runs[-1][0] >= runs[-2][0]:
            newer = runs.pop()
            runs[-1] = _merge(runs[-1], newer)


def _pack(topics: Topics) -> Run:
    packed = {
        topic: {
            index: (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
            )
            for index, value in partitions.items()
        }
        for topic, partitions in topics.items()
    }
    return sum(map(len, packed.values())), memoryview(_encode(packed))


def _merge(older: Run, newer: Run) -> Run:
    """Merge two runs without unpacking their offsets."""
    merged = _decode_raw(older[1])
    for topic, partitions in _decode_raw(newer[1]).items():
        merged.setdefault(topic, {}).update(partitions)
    return sum(map(len, merged.values())), memoryview(_encode(merged))
