"""The hash of a column of keys is Kafka's hash of each."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from pipeline.topics.murmur2 import positive_hashes

LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40, 255, 256, 257, 258, 259, 260, 1000]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)],
)
def test_keys_are_hashed_as_kafka_s_own_tests_say(text: str, hashed: int) -> None:
    keys = pa.array([text.encode()], pa.large_binary())
    assert positive_hashes(keys).tolist() == [hashed & 0x7FFFFFFF]


@pytest.mark.parametrize("first", [0, 100])
def test_a_column_is_hashed_as_its_keys_one_by_one(first: int) -> None:
    """Keys of every length modulo four, and on both sides of where long ones begin; a slice too."""
    chance = random.Random(5)
    keys = [*(chance.randbytes(chance.choice(LENGTHS)) for _ in range(1_000)), None]
    found = positive_hashes(pa.array(keys, pa.large_binary()).slice(first))
    assert found.tolist() == [
        0 if key is None else murmur2(key) & 0x7FFFFFFF for key in keys[first:]
    ]


def test_columns_without_keys() -> None:
    assert positive_hashes(pa.array([], pa.large_binary())).tolist() == []
    assert positive_hashes(pa.nulls(2, pa.large_binary())).tolist() == [0, 0]
