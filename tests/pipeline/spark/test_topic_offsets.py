"""Options, positions, limits and ranges of a read of a topic."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.pipeline.spark.topic_offsets import (
    EARLIEST,
    LATEST,
    InvalidReadOption,
    ReadOptions,
    RecordsLost,
    TopicBounds,
    TopicOffsets,
    decode_topic_offsets,
    known_offsets,
    limit_offsets,
    parse_read_options,
    resolve_offsets,
    split_range,
)

GIVEN = {"root": "/data/groups", "topic": "clicks"}
BOUNDS = TopicBounds("clicks", "id-1", {0: 3, 1: 0}, {0: 9, 1: 5})


def parse(is_stream: bool = False, **options: str) -> ReadOptions:
    return parse_read_options({**GIVEN, **options}, is_stream=is_stream)


def written(**offsets: int) -> TopicOffsets:
    """Return offsets of the topic `clicks`, as a user writes them."""
    return TopicOffsets("clicks", None, {int(name[1:]): at for name, at in offsets.items()})


def test_a_batch_begins_at_the_earliest_offset_and_a_stream_at_the_latest() -> None:
    assert parse() == ReadOptions("/data/groups", "clicks", EARLIEST)
    assert parse(is_stream=True) == ReadOptions("/data/groups", "clicks", LATEST)


def test_options_have_any_case_and_their_values_types() -> None:
    found = parse(
        is_stream=True,
        startingOffsets='{"clicks": {"0": 23, "1": -2}}',
        MAXOFFSETSPERTRIGGER="10",
        failondataloss="FALSE",
        maxRecordsPerPartition="7",
        groupIdForProgress="job",
    )
    assert found == ReadOptions(
        "/data/groups",
        "clicks",
        written(p0=23, p1=-2),
        LATEST,
        fail_on_data_loss=False,
        max_records_per_partition=7,
        max_offsets_per_trigger=10,
        group_id="job",
    )
    assert parse(endingOffsets='{"clicks": {"0": -1}}').ending == written(p0=-1)


def test_a_relative_root_is_made_absolute_for_the_executors(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(root="groups").root == str(tmp_path / "groups")
    assert parse(root="s3://bucket/groups").root == "s3://bucket/groups"


@pytest.mark.parametrize(
    ("options", "is_stream", "named"),
    [
        ({"root": ""}, False, r'set .option\("root", ...\)'),
        ({"topic": ""}, False, r'set .option\("topic", ...\)'),
        ({"startingOffset": "earliest"}, False, "no option 'startingoffset': its options are root"),
        ({"endingOffsets": "latest"}, True, "a stream of a topic has no option 'endingoffsets'"),
        ({"maxOffsetsPerTrigger": "5"}, False, "a batch of a topic has no option"),
        ({"startingOffsets": "latest"}, False, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"clicks": {"0": -1}}'}, False, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"clicks": {"0": -2}}'}, False, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "first"}, False, "neither earliest, latest nor JSON"),
        ({"startingOffsets": '{"clicks": 3}'}, False, "neither earliest, latest nor JSON"),
        ({"startingOffsets": '{"clicks": {"first": 3}}'}, False, "neither earliest, latest nor"),
        ({"startingOffsets": '{"clicks": {}, "views": {}}'}, False, "names 2 topics"),
        ({"startingOffsets": '{"views": {"0": 1}}'}, False, "names topic 'views', not 'clicks'"),
        ({"startingOffsets": '{"clicks": {"0": -3}}'}, False, "below -2"),
        ({"failOnDataLoss": "no"}, False, "failOnDataLoss is 'no', and must be true or false"),
        ({"maxRecordsPerPartition": "0"}, False, "must be a number of at least 1"),
        ({"maxOffsetsPerTrigger": "-1"}, True, "must be a number of at least 1"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, str], is_stream: bool, named: str) -> None:
    with pytest.raises(InvalidReadOption, match=named):
        parse(is_stream, **options)


# --- positions ------------------------------------------------------------------------------------


def test_a_position_has_the_json_of_the_kafka_source_and_the_id_of_the_topic() -> None:
    position = TopicOffsets("clicks", "id-1", {10: 4, 2: 5})
    text = json.dumps(position.to_json())
    # Spark compares positions as texts, so the partitions have one order.
    assert text == '{"clicks": {"2": 5, "10": 4, "topicId": "id-1"}}'
    assert decode_topic_offsets(json.loads(text)) == position


def test_a_position_of_the_kafka_source_has_no_id() -> None:
    assert decode_topic_offsets({"clicks": {"0": 5}}) == written(p0=5)


@pytest.mark.parametrize("stored", [None, 5, {"offset": 5}, {}, {"a": {}, "b": {}}])
def test_json_that_is_no_position_is_refused(stored: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_topic_offsets(stored)


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (EARLIEST, {0: 3, 1: 0}),
        (LATEST, {0: 9, 1: 5}),
        (written(p0=-2, p1=-1), {0: 3, 1: 5}),
        (written(p0=9, p1=4), {0: 9, 1: 4}),
        # Deleted: the reader of the partition reports it, or begins at the log start.
        (written(p0=1, p1=0), {0: 1, 1: 0}),
        (TopicOffsets("clicks", "id-1", {0: 4, 1: 4}), {0: 4, 1: 4}),
    ],
)
def test_offsets_are_resolved_by_the_bounds_of_the_topic(wanted: Any, offsets: Any) -> None:
    found = resolve_offsets("startingOffsets", wanted, BOUNDS)
    assert found == TopicOffsets("clicks", "id-1", offsets)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (written(p0=3), "must have an offset for each partition of topic 'clicks', 0 to 1"),
        (written(p0=3, p1=3, p2=3), "must have an offset for each partition"),
        (written(p0=10, p1=0), "offset 10 of partition 0, and topic 'clicks' ends there at offset"),
    ],
)
def test_offsets_that_the_topic_does_not_have_are_refused(wanted: Any, named: str) -> None:
    with pytest.raises(InvalidReadOption, match=named):
        resolve_offsets("startingOffsets", wanted, BOUNDS)


def test_offsets_of_an_earlier_topic_of_the_name_are_refused() -> None:
    before = TopicOffsets("clicks", "id-0", {0: 4, 1: 4})
    with pytest.raises(RecordsLost, match="deleted and created again: its id is id-1"):
        resolve_offsets("startingOffsets", before, BOUNDS)


# --- batches --------------------------------------------------------------------------------------


def test_an_added_partition_begins_at_offset_0() -> None:
    start, end = TopicOffsets("clicks", "id-1", {0: 4}), BOUNDS.end()
    assert known_offsets(start, end) == {0: 4, 1: 0}
    assert known_offsets(written(p0=4), end) == {0: 4, 1: 0}


def test_a_topic_that_was_created_again_begins_at_offset_0() -> None:
    start = TopicOffsets("clicks", "id-0", {0: 4, 1: 4})
    assert known_offsets(start, BOUNDS.end()) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("start", "end", "most", "limited"),
    [
        ({0: 0, 1: 0}, {0: 10, 1: 30}, 20, {0: 5, 1: 15}),
        ({0: 5, 1: 0}, {0: 10, 1: 15}, 20, {0: 10, 1: 15}),
        # A small partition is not starved.
        ({0: 0, 1: 7}, {0: 1_000_000, 1: 8}, 10, {0: 9, 1: 8}),
        ({0: 0, 1: 0, 2: 3}, {0: 5, 1: 5, 2: 3}, 1, {0: 1, 1: 1, 2: 3}),
        # An offset after the log end is set back to it.
        ({0: 9, 1: 0}, {0: 4, 1: 10}, 5, {0: 4, 1: 5}),
    ],
)
def test_a_limit_is_shared_in_proportion_to_the_records(
    start: Any, end: Any, most: int, limited: Any
) -> None:
    assert limit_offsets(start, end, most) == limited


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=9),
    st.integers(1, 1 << 41),
)
def test_batches_within_a_limit_reach_the_end(sizes: list[tuple[int, int]], most: int) -> None:
    start = {number: at for number, (at, _) in enumerate(sizes)}
    end = {number: at + size for number, (at, size) in enumerate(sizes)}
    limited = limit_offsets(start, end, most)
    taken = {number: limited[number] - start[number] for number in start}
    assert all(start[number] <= limited[number] <= end[number] for number in start)
    assert sum(taken.values()) <= most + len(sizes)
    assert all(taken[number] > 0 for number, (_, size) in enumerate(sizes) if size)


@pytest.mark.parametrize(
    ("start", "end", "most", "parts"),
    [
        (4, 4, 10, []),
        (9, 4, 10, []),
        (4, 14, 10, [(4, 14)]),
        (4, 15, 10, [(4, 9), (9, 15)]),
        (0, 3, 1, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_a_range_is_split_into_parts_of_about_equal_sizes(
    start: int, end: int, most: int, parts: list[tuple[int, int]]
) -> None:
    assert list(split_range(start, end, most)) == parts
