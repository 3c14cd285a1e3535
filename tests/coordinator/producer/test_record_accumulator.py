"""What waits keeps its order, is due in time, and takes no more memory than it may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.producer.partitioners import new_partitioner
from group_coordinator.coordinator.producer.record_accumulator import (
    RECORD_OVERHEAD,
    BufferPool,
    TopicQueue,
    record_size,
)

BATCH, LINGER = 1_000, 50
PARTITION = st.integers(0, 3)


def queue(count: int = 4) -> TopicQueue:
    return TopicQueue(
        BATCH, LINGER, new_partitioner("round_robin", "t", lambda _: 0), count, object
    )


def append(waiting: TopicQueue, partition: int, value: bytes, now: float = 0, **more: Any) -> Any:
    size = record_size(None, value)
    return waiting.append(partition, None, value, 0, more.get("headers", ()), size, now)


@given(
    st.lists(
        st.tuples(PARTITION, st.integers(0, 1_500))
        | st.tuples(st.just("rows"), PARTITION)
        | st.integers(1, 5_000),
        max_size=60,
    )
)
def test_records_of_a_partition_are_drained_in_order(steps: list[Any]) -> None:
    """Records, rows of tables, and drains of so many bytes; every batch is within its bounds."""
    waiting = queue()
    numbers: Iterator[int] = iter(range(len(steps)))
    sent: dict[int, list[int]] = {}
    left: dict[int, list[int]] = {}

    def drain(most: int) -> None:
        taken = waiting.drain(most)
        assert len(taken) == 1 or sum(batch.size for batch in taken) <= most
        for batch in taken:
            assert batch.size <= BATCH or len(batch) == 1 or batch.is_closed
            left.setdefault(batch.partition, []).extend(batch.timestamps)

    for step in steps:
        if isinstance(step, int):
            assert bool(waiting) is (waiting.ready_at() is not None)
            drain(step)
        elif step[0] == "rows":
            rows = [next(numbers)]
            waiting.append_columns(step[1], ([None], [b""], rows, None), 700, 700, 0)
            sent.setdefault(step[1], []).extend(rows)
        else:
            partition, length = step
            number = next(numbers)
            size = record_size(None, bytes(length))
            waiting.append(partition, None, bytes(length), number, (), size, 0)
            sent.setdefault(partition, []).append(number)
    while waiting:
        drain(1)
    assert left == sent
    assert waiting.ready_at() is None and waiting.drain(1) == []


@given(
    st.integers(100, 2_000), st.lists(st.integers(1, 900) | st.none(), max_size=60), st.booleans()
)
def test_buffer_pool_is_bounded_and_regains_all_memory(
    most: int, steps: list[int | None], waits: bool
) -> None:
    """A step None returns the oldest allocation; a waiting ticket blocks all other requests."""
    memory = BufferPool(most)
    taken: list[int] = []
    ticket = object()
    if waits:
        memory.blocked.append(ticket)
    for step in steps:
        if step is None:
            if taken:
                memory.deallocate(taken.pop(0))
        elif memory.fits(step, ticket if waits else None):
            assert memory.used + step <= most
            memory.allocate(step)
            taken.append(step)
        else:
            assert memory.used + step > most
        if waits:
            assert not memory.fits(0)
        assert memory.used == sum(taken) <= most


def test_batch_is_due_when_full_or_after_linger() -> None:
    waiting = queue()
    assert waiting.ready_at() is None
    first = append(waiting, 0, b"a", now=10)
    append(waiting, 1, b"b", now=30)
    assert waiting.ready_at() == 10 + LINGER
    append(waiting, 1, bytes(BATCH), now=40)
    assert waiting.ready_at() == 30, "a second batch has begun: the first is closed"
    assert waiting.drain(1) == [first]
    append(waiting, 2, bytes(BATCH - RECORD_OVERHEAD), now=50)
    (full,) = [batch for batch in waiting.drain(1 << 20) if batch.partition == 2]
    assert waiting.is_full(full) and full.size == BATCH


def test_partitions_take_turns_when_a_commit_cannot_take_all_batches() -> None:
    waiting = queue()
    for partition in (0, 1, 0, 1):
        append(waiting, partition, bytes(900))
    order = [batch.partition for _ in range(4) for batch in waiting.drain(1)]
    assert order == [0, 1, 0, 1]


def test_headers_stay_with_their_record() -> None:
    waiting = queue()
    append(waiting, 0, b"a")
    append(waiting, 0, b"b", headers=[("h", b"1")])
    batch = append(waiting, 0, b"c")
    assert batch.headers == [(), (("h", b"1"),), ()]
    assert record_size(b"k", b"v", [("hä", b"1"), ("", None)]) == RECORD_OVERHEAD + 2 + 10 + 4 + 10


@pytest.mark.parametrize("forget", [False, True])
def test_completed_batch_keeps_only_its_timestamps(forget: bool) -> None:
    batch = append(queue(), 0, b"a")
    if forget:
        batch.clear()
    assert len(batch) == 1
    assert (batch.values is None) is forget
