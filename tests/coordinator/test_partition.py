"""The offsets partition of a group, by Java's String.hashCode, to the bit."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.group.partition import java_string_hash, partition_for

INTEGER_MIN = -(2**31)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("hello", 99162322),
        # Java's own examples of colliding strings.
        ("Aa", 2112),
        ("BB", 2112),
        # It wraps around at 32 bits, and may be negative.
        ("Hello, World!", 1498789909),
        ("polygenelubricants", INTEGER_MIN),
        ("é", 0xE9),
        ("日本", 0x65E5 * 31 + 0x672C),
        # Beyond the basic plane a character is two units.
        ("😀", 0xD83D * 31 + 0xDE00),
        # Half of a surrogate pair is a valid Java string, and may come out of JSON.
        ("\ud83d", 0xD83D),
    ],
)
def test_java_s_hash(text: str, value: Any) -> None:
    assert java_string_hash(text) == value


@pytest.mark.parametrize("text", ["group", "x" * 1000, "\uffff" * 50, "😀" * 33])
def test_the_hash_fits_in_32_bits(text: str) -> None:
    assert INTEGER_MIN <= java_string_hash(text) < 2**31


@pytest.mark.parametrize(
    ("group_id", "partitions", "partition"),
    [
        ("", 50, 0),
        ("a", 50, 47),
        ("hello", 50, 22),
        ("hello", 1, 0),
        # The only value without a positive counterpart.
        ("polygenelubricants", 50, 0),
        ("polygenelubricants", 7, 0),
    ],
)
def test_the_partition_is_the_hash_s_remainder(
    group_id: str, partitions: int, partition: int
) -> None:
    assert partition_for(group_id, partitions) == partition


def test_a_negative_hash_counts_as_its_positive_twin() -> None:
    names = (f"{number}-group" for number in range(100))
    negative = next(name for name in names if java_string_hash(name) < 0)
    assert partition_for(negative, 50) == -java_string_hash(negative) % 50


def test_kafka_s_own_test_groups_are_on_different_partitions() -> None:
    assert partition_for("groupId", 2) != partition_for("otherGroup", 2)
