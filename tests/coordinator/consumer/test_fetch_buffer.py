"""Prefetched records: when they are returned or dropped, and the turns of the partitions."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import OffsetOutOfRangeError
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset, parse_settings
from group_coordinator.coordinator.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionState,
)

A, B, C = (TopicPartition("t", number) for number in range(3))
EARLIEST, LATEST = AutoOffsetReset.EARLIEST, AutoOffsetReset.LATEST


class Row(NamedTuple):
    offset: int


class World:
    """A consumer's subscription, its buffer, and logs that fetches read from."""

    def __init__(self, *partitions: TopicPartition, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = parse_settings({"group.id": "g", **named})
        self.buffer: FetchBuffer[Row] = FetchBuffer(self.settings)
        self.state = SubscriptionState()
        self.state.subscribe(["t"])
        self.assign(*partitions)

    def assign(self, *partitions: TopicPartition) -> None:
        """A rebalance; a partition that is new begins at its committed offset, 0."""
        self.state.assign(partitions)
        begin = dict.fromkeys(self.state.initializing, OffsetAndMetadata(0))
        self.state.refresh(begin, self.settings.auto_offset_reset)

    def collect(self) -> dict[TopicPartition, list[int]]:
        found = self.buffer.collect(self.state)
        return {one: [row.offset for row in rows] for one, rows in found.items()}

    def fetch(self, one: TopicPartition, offset: int, count: int, size: int = 10) -> None:
        rows = [Row(offset + number) for number in range(count)]
        self.buffer.add(CompletedFetch(one, offset, rows, size))

    def fail(self, one: TopicPartition, offset: int, error: Exception) -> None:
        self.buffer.add(CompletedFetch(one, offset, error=error))


def rows(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


# --- one partition --------------------------------------------------------------------------------


def test_a_poll_has_max_poll_records_and_positions_move_behind_them() -> None:
    world = World(A, max_poll_records=4)
    assert world.collect() == {}
    assert world.buffer.partitions_to_fetch() == {A: 0}
    world.fetch(A, 0, 6)
    assert world.collect() == {A: rows(0, 4)}
    assert (world.state.position(A), world.buffer.partitions_to_fetch()) == (4, {})
    assert world.collect() == {A: rows(4, 2)}
    assert world.buffer.partitions_to_fetch() == {A: 6}, (
        "the next fetch is under way while these are worked on"
    )


def test_nothing_is_wanted_before_the_first_poll() -> None:
    assert World(A).buffer.partitions_to_fetch() == {}


@pytest.mark.parametrize("to", [0, 2, 9])
def test_a_seek_drops_what_was_fetched(to: int) -> None:
    world = World(A, max_poll_records=3)
    world.collect()
    world.fetch(A, 0, 6)
    assert world.collect() == {A: rows(0, 3)}
    world.state.seek(A, to)
    assert world.collect() == {}
    assert world.buffer.partitions_to_fetch() == {A: to}
    world.fetch(A, to, 2)
    assert world.collect() == {A: rows(to, 2)}


def test_a_seek_drops_what_is_being_fetched() -> None:
    world = World(A)
    world.collect()
    world.state.seek(A, 50)
    world.fetch(A, 0, 6)
    assert world.collect() == {}
    world.fetch(A, 0, 6)
    assert world.collect() == {}
    world.fetch(A, 50, 1)
    assert world.collect() == {A: [50]}


def test_a_paused_partitions_records_wait_until_it_is_resumed() -> None:
    world = World(A, B)
    world.collect()
    world.fetch(A, 0, 2)
    world.fetch(B, 0, 2)
    world.state.pause([A])
    assert world.collect() == {B: rows(0, 2)}
    assert world.buffer.partitions_to_fetch() == {B: 2}, "a paused partition is not fetched"
    world.state.resume([A])
    assert world.collect() == {A: rows(0, 2)}


def test_a_paused_partition_that_is_sought_gives_nothing_of_the_old_place() -> None:
    world = World(A)
    world.collect()
    world.fetch(A, 0, 2)
    world.state.pause([A])
    world.collect()
    world.state.seek(A, 7)
    world.state.resume([A])
    assert world.collect() == {}
    assert world.buffer.partitions_to_fetch() == {A: 7}


# --- rebalances -----------------------------------------------------------------------------------


def test_a_revoked_partitions_records_are_not_handed_out() -> None:
    world = World(A, B)
    world.collect()
    world.fetch(A, 0, 2)
    world.fetch(B, 0, 2)
    world.assign(B)
    assert world.collect() == {B: rows(0, 2)}
    assert world.buffer.partitions_to_fetch() == {B: 2}
    world.assign(A, B)
    world.state.seek(A, 1)
    assert world.collect() == {}, "somebody else went on meanwhile"
    assert set(world.buffer.partitions_to_fetch()) == {A, B}


def test_what_is_about_to_be_revoked_is_not_handed_out_so_that_its_commit_is_final() -> None:
    world = World(A)
    world.collect()
    world.fetch(A, 0, 2)
    world.state.mark_pending_revocation()
    assert world.collect() == {}
    assert (world.state.position(A), world.buffer.partitions_to_fetch()) == (0, {})


# --- turns ----------------------------------------------------------------------------------------


def test_partitions_take_turns() -> None:
    world = World(A, B, C, max_poll_records=3)
    world.collect()
    for one in (A, B, C):
        world.fetch(one, 0, 5)
    turns = [world.collect() for _ in range(5)]
    assert turns == [
        {A: rows(0, 3)},
        {B: rows(0, 3)},
        {C: rows(0, 3)},
        {A: rows(3, 2), B: [3]},
        {C: rows(3, 2), B: [4]},
    ]


def test_a_partition_that_always_has_records_keeps_no_other_one_waiting() -> None:
    world = World(A, B, C, fetch_max_bytes=10)
    for _ in range(3):
        world.collect()
        first = next(iter(world.buffer.partitions_to_fetch()))
        world.fetch(first, world.state.position(first) or 0, 1)
        assert world.buffer.partitions_to_fetch() == {}, (
            "fetch.max.bytes are waiting to be handed out"
        )
        assert list(world.collect()) == [first]
    assert [world.state.position(one) for one in (A, B, C)] == [1, 1, 1]


def test_records_of_paused_partitions_do_not_stop_the_others() -> None:
    world = World(A, B, fetch_max_bytes=10)
    world.collect()
    world.fetch(A, 0, 5, size=1_000)
    world.state.pause([A])
    world.collect()
    assert world.buffer.partitions_to_fetch() == {B: 0}


# --- errors and resets ----------------------------------------------------------------------------


def test_an_error_is_raised_after_the_records_before_it_and_again_when_it_comes_again() -> None:
    world = World(A, B)
    world.collect()
    world.fetch(A, 0, 2)
    world.fail(B, 0, LookupError("B"))
    assert world.collect() == {A: rows(0, 2)}
    with pytest.raises(LookupError):
        world.collect()
    assert world.buffer.partitions_to_fetch() == {A: 2, B: 0}
    world.fetch(A, 2, 2)
    world.fail(B, 0, LookupError("B"))
    assert world.collect() == {A: rows(2, 2)}, "an error of one partition holds no other one back"
    with pytest.raises(LookupError):
        world.collect()
    world.state.seek(B, 1)
    world.collect()
    world.fetch(B, 1, 1)
    assert world.collect() == {B: [1]}


@pytest.mark.parametrize(("reset", "found"), [(EARLIEST, 30), (LATEST, 90)])
def test_an_offset_out_of_range_is_reset(reset: AutoOffsetReset, found: int) -> None:
    world = World(A, auto_offset_reset=reset.value)
    world.collect()
    world.fail(A, 0, OffsetOutOfRangeError("0"))
    assert world.collect() == {}
    lookup, resets = world.buffer.pending_resets()
    assert (resets, world.buffer.partitions_to_fetch()) == ({A: reset}, {})
    world.buffer.complete_lookups(lookup, {A: (reset, found)})
    assert world.buffer.pending_resets()[1] == {}
    assert world.collect() == {}
    assert world.buffer.partitions_to_fetch() == {A: found}


def test_an_offset_out_of_range_is_raised_if_there_is_no_reset() -> None:
    world = World(A, auto_offset_reset="none")
    world.collect()
    world.fail(A, 0, OffsetOutOfRangeError("0"))
    with pytest.raises(OffsetOutOfRangeError):
        world.collect()
    assert world.state.position(A) == 0


def test_an_offset_out_of_range_that_was_sought_away_from_is_forgotten() -> None:
    world = World(A, auto_offset_reset="none")
    world.collect()
    world.fail(A, 0, OffsetOutOfRangeError("0"))
    world.state.seek(A, 3)
    assert world.collect() == {}


def test_an_end_that_was_looked_up_before_the_last_seek_to_it_is_not_used() -> None:
    world = World(A)
    world.state.request_reset(A, LATEST)
    world.collect()
    early, _ = world.buffer.pending_resets()
    world.buffer.complete_lookups(early, {A: (LATEST, 10)})
    world.buffer.discard_lookups([A])
    world.buffer.complete_lookups(early, {A: (LATEST, 10)})
    assert world.collect() == {}
    assert world.state.position(A) is None
    late, _ = world.buffer.pending_resets()
    world.buffer.complete_lookups(late, {A: (LATEST, 20)})
    world.collect()
    assert world.state.position(A) == 20


def test_a_lookup_that_failed_is_raised_and_made_again() -> None:
    world = World(A)
    world.state.request_reset(A, EARLIEST)
    world.collect()
    lookup, _ = world.buffer.pending_resets()
    world.buffer.complete_lookups(lookup, {A: (EARLIEST, LookupError("no table"))})
    with pytest.raises(LookupError, match="no table"):
        world.collect()
    assert world.buffer.pending_resets()[1] == {A: EARLIEST}
