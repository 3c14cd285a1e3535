"""The hash of a column of keys is Kafka's hash of each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from group_coordinator.pipeline.topics.columns import positive_hashes

# Of every length modulo four, and on both sides of where long ones begin.
KEYS = st.none() | st.binary(max_size=20) | st.binary(min_size=250, max_size=265)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)],
)
def test_keys_are_hashed_as_kafka_s_own_tests_say(text: str, hashed: int) -> None:
    keys = pa.array([text.encode()], pa.large_binary())
    assert positive_hashes(keys).tolist() == [hashed & 0x7FFFFFFF]


@given(st.lists(KEYS, max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_a_column_is_hashed_as_its_keys_one_by_one(
    keys: list[bytes | None], first: int, count: int
) -> None:
    found = positive_hashes(pa.array(keys, pa.large_binary()).slice(first, count))
    assert found.tolist() == [
        0 if key is None else murmur2(key) & 0x7FFFFFFF for key in keys[first : first + count]
    ]


def test_columns_without_keys() -> None:
    assert positive_hashes(pa.array([], pa.large_binary())).tolist() == []
    assert positive_hashes(pa.nulls(2, pa.large_binary())).tolist() == [0, 0]
