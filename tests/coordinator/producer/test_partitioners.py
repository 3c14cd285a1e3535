"""Keys go to the partitions of Kafka's clients; records without a key fill a batch first."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner, murmur2

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.producer.partitioners import (
    NAMES,
    new_partitioner,
    positive_hash,
)
from group_coordinator.coordinator.producer.record_accumulator import TopicQueue
from group_coordinator.pipeline.topics import positive_hashes

KEYS = st.binary(max_size=20) | st.binary(min_size=250, max_size=265)


def random_index(count: int) -> int:
    return count - 1


@given(KEYS)
def test_hash_of_a_key_equals_kafka_python_and_the_column_hash(key: bytes) -> None:
    assert positive_hash(key) == murmur2(key) & 0x7FFFFFFF
    assert positive_hashes(pa.array([key], pa.large_binary())).tolist() == [positive_hash(key)]


@given(KEYS, st.integers(1, 100))
def test_partition_of_a_key_equals_kafka_python(key: bytes, count: int) -> None:
    every = set(range(count))
    cluster = SimpleNamespace(
        topics=lambda: {"t"},
        partitions_for_topic=lambda _: every,
        available_partitions_for_topic=lambda _: every,
    )
    theirs = DefaultPartitioner().partition("t", key, key, None, None, cluster)
    assert new_partitioner("default", "t", random_index).partition(key, None, count) == theirs


@given(
    st.integers(1, 9),
    st.lists(st.sampled_from(["without", "key", "drain"]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_records_without_a_key_fill_a_batch_then_change_the_partition(
    count: int, steps: list[str], random: Random
) -> None:
    queue = TopicQueue(400, 0, new_partitioner("default", "t", random.randrange), count, object)
    batch: Any = None
    for step in steps:
        if step == "drain":
            queue.drain(1 << 30)
            continue
        key = b"k" if step == "key" else None
        partition = queue.choose_partition(key, b"v", 100)
        found = queue.append(partition, key, b"v", 0, (), 100, 0)
        if key is None:
            if batch is not None and len(found) == 1 and count > 1:
                assert found.partition != batch.partition, "it begins another batch"
            batch = found


def test_sticky_partitions_get_equal_shares() -> None:
    queue = TopicQueue(100, 0, new_partitioner("default", "t", Random(1).randrange), 5, object)
    found = Counter(
        queue.append(queue.choose_partition(None, b"", 100), None, b"", 0, (), 100, 0).partition
        for _ in range(5_000)
    )
    assert all(900 < found[number] < 1_100 for number in range(5))


def test_round_robin_ignores_the_key() -> None:
    queue = TopicQueue(1_000, 0, new_partitioner("round_robin", "t", random_index), 3, object)
    keys = [None, b"a", b"a", None, b"b"]
    found = [queue.choose_partition(key, b"", 100) for key in keys]
    assert found == [0, 1, 2, 0, 1]


def test_function_of_the_user_chooses_the_partition() -> None:
    asked: list[Any] = []
    last = new_partitioner(lambda *given: asked.append(given) or given[-1] - 1, "t", random_index)
    assert last.partition(b"k", b"v", 4) == 3
    assert asked == [("t", b"k", b"v", 4)]
    for wrong in (4, -1, None):
        bad: Any = new_partitioner(lambda *_, found=wrong: found, "t", random_index)
        with pytest.raises(ValueError, match="for topic 't', which has partitions 0 to 3"):
            bad.partition(None, None, 4)


def test_unknown_partitioner_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="'round-robin'; did you mean 'round_robin'"):
        new_partitioner("round-robin", "t", random_index)
    for name in NAMES:
        assert new_partitioner(name, "t", random_index).partition(b"k", b"v", 1) == 0
