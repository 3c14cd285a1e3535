"""Committed offsets in runs: all commits and deletions, in any batches, are kept."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.group import offsets as module
from group_coordinator.coordinator.group.offsets import Offsets, Topics
from group_coordinator.schemas.records import OffsetCommitValue

# A commit of (topic, partition), its deletion, or the end of a batch.
KEYS = st.tuples(st.sampled_from(["orders", "pays", ""]), st.integers(0, 4))
ACTIONS = st.one_of(st.tuples(st.just("commit"), KEYS), st.tuples(st.just("drop"), KEYS))
BATCHES = st.lists(st.lists(ACTIONS, max_size=8), max_size=12)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset, 3, "wherever", 1_800_000_000_000 + offset, -1)


def stored(offsets: Offsets) -> Offsets:
    """Return the offsets as a later batch reads them."""
    offsets.pack()
    return msgspec.msgpack.decode(msgspec.msgpack.encode(offsets), type=Offsets)


def held(offsets: Offsets) -> int:
    return sum(map(len, offsets.topics.values()))


@given(BATCHES, st.booleans())
def test_they_are_what_a_plain_map_would_be(
    batches: list[list[tuple[str, tuple[str, int]]]], read: bool
) -> None:
    offsets, plain = Offsets(), {}
    count = 0
    for batch in batches:
        for action, (topic, partition) in batch:
            count += 1
            if action == "commit":
                offsets.commit(topic, partition, value(count))
                plain[topic, partition] = value(count)
            else:
                assert offsets.drop(topic, partition) == ((topic, partition) in plain)
                plain.pop((topic, partition), None)
            if read:
                assert flat(offsets.topics) == plain
        assert bool(offsets) == bool(plain)
        offsets = stored(offsets)
        assert bool(offsets) == bool(plain)
    assert flat(offsets.topics) == plain
    assert all(offsets.values())


def flat(topics: Topics) -> dict[tuple[str, int], OffsetCommitValue]:
    return {(topic, index): v for topic, ps in topics.items() for index, v in ps.items()}


def test_a_commit_leaves_what_is_there_packed() -> None:
    offsets = Offsets()
    for index in range(1000):
        offsets.commit("orders", index, value(index))
    offsets = stored(offsets)
    (before,) = offsets.runs
    offsets.commit("orders", 7, value(2000))
    offsets = stored(offsets)
    assert offsets.runs[0] == before
    assert [count for count, _ in offsets.runs] == [1000, 1]
    assert offsets["orders"][7] == value(2000)
    assert held(offsets) == 1000


def test_runs_are_few_and_hold_little_twice() -> None:
    offsets = Offsets()
    packed = 0
    for index in range(1000):
        offsets.commit("orders", index, value(index))
        offsets = stored(offsets)
        assert len(offsets.runs) <= 1 + math.log2(index + 1)
    for index in range(0, 1000, 7):
        offsets.commit("orders", index, value(index))
        offsets = stored(offsets)
        packed = sum(count for count, _ in offsets.runs)
        assert packed < 2000
    assert packed > 1000
    assert held(offsets) == 1000


def test_many_commits_pack_each_offset_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = Offsets()
    merged = 0
    merge = module._merge

    def counted(older: module.Run, newer: module.Run) -> module.Run:
        nonlocal merged
        merged += older[0] + newer[0]
        return merge(older, newer)

    monkeypatch.setattr(module, "_merge", counted)
    for index in range(1024):
        offsets.commit("orders", index, value(index))
        offsets = stored(offsets)
    assert merged < 1024 * 2 * math.log2(1024)


def test_a_dropped_offset_takes_its_empty_topic_along() -> None:
    offsets = Offsets(fresh={"orders": {0: value(5), 1: value(5)}})
    assert offsets.drop("orders", 0) is True
    assert offsets.drop("orders", 0) is False
    assert offsets == {"orders": {1: value(5)}}
    assert offsets.drop("orders", 1) is True
    assert offsets == {}
    assert not offsets
    assert offsets.drop("orders", 1) is False


def test_packing_again_changes_nothing() -> None:
    offsets = Offsets()
    offsets.commit("orders", 0, value(1))
    offsets = stored(offsets)
    runs = list(offsets.runs)
    offsets.pack()
    assert offsets.runs == runs
    assert stored(offsets) == offsets
