"""Groups are of the partitions that Kafka's hash says, however many are asked for at once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.stream.packed_events import in_partitions, partitions_for

# A text whose hash is Java's Integer.MIN_VALUE.
LEAST_HASH = "polygenelubricants"
ids = st.text(st.characters(max_codepoint=0x7F), max_size=300) | st.text(max_size=5)


@given(st.lists(ids | st.none(), max_size=12), st.integers(1, 60), st.integers(0, 12))
def test_each_is_of_the_partition_that_is_told_for_it_alone(
    groups: list[str | None], of: int, begin: int
) -> None:
    array = pa.array(groups, pa.string()).slice(begin)
    alone = [0 if group is None else partition_for(group, of) for group in groups[begin:]]
    assert partitions_for(array, of).tolist() == alone


@pytest.mark.parametrize("other", ["", "ü", "x" * 257])
def test_ids_of_every_kind(other: str) -> None:
    groups = [LEAST_HASH, other, None, "", "billing", "\x00", other]
    expected = [0 if group is None else partition_for(group, 50) for group in groups]
    assert partitions_for(pa.array(groups), 50).tolist() == expected
    assert partition_for(LEAST_HASH, 50) == 0


def test_those_of_some_partitions_are_told_from_the_others() -> None:
    groups = [*(f"group-{n}" for n in range(40)), None]
    found = in_partitions(pa.array(groups), PartitionSet((0, 3, 90), 7)).to_pylist()
    expected = [0 if group is None else partition_for(group, 7) for group in groups]
    assert found == [partition in (0, 3) for partition in expected]
