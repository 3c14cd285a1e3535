"""Offsets of a topic that a Spark query reads: options, positions, limits and ranges.

The options have the names and meanings of Spark's Kafka source. Source: Spark, KafkaSourceProvider,
KafkaMicroBatchStream, KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.delta import absolute_uri
from group_coordinator.pipeline.errors import Failure, UsageError

# Offsets that stand for the log start and the log end, as in Kafka's ListOffsets.
EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
# The key of the topic's id in the JSON of a position.
_TOPIC_ID = "topicId"
# The default of `maxRecordsPerPartition`.
_MOST_RECORDS = 250_000
_NAMES = ("root", "topic", "startingOffsets", "failOnDataLoss", "maxRecordsPerPartition")
_BATCH_NAMES = (*_NAMES, "endingOffsets")
_STREAM_NAMES = (*_NAMES, "maxOffsetsPerTrigger", "groupIdForProgress")


class InvalidReadOption(UsageError):
    """An option of a read that is missing, unknown or has an invalid value."""


class RecordsLost(Failure):
    """Records that a query has to read do not exist any more."""


class TopicOffsets(Struct, frozen=True):
    """A position in a topic: the next offset of each partition.

    `topic_id` distinguishes topics that had this name one after the other. It is None in a position
    that a user wrote.
    """

    topic: str
    topic_id: str | None
    offsets: dict[int, int]

    def to_json(self) -> dict[str, dict[str, int | str]]:
        """Return the position as Spark stores it.

        It has the form of the Kafka source, plus the id: `{"clicks": {"0": 5, "topicId": "..."}}`.
        """
        entries: dict[str, int | str] = {
            str(number): self.offsets[number] for number in sorted(self.offsets)
        }
        if self.topic_id is not None:
            entries[_TOPIC_ID] = self.topic_id
        return {self.topic: entries}


class TopicBounds(Struct, frozen=True):
    """The log starts and log ends of a topic's partitions."""

    topic: str
    topic_id: str
    starts: dict[int, int]
    ends: dict[int, int]

    def end(self) -> TopicOffsets:
        """Return the position at the log ends."""
        return TopicOffsets(self.topic, self.topic_id, self.ends)


class ReadOptions(Struct, frozen=True):
    """The options of a read. `starting` and `ending` are EARLIEST, LATEST or offsets."""

    root: str
    topic: str
    starting: int | TopicOffsets
    ending: int | TopicOffsets = LATEST
    fail_on_data_loss: bool = True
    max_records_per_partition: int = _MOST_RECORDS
    max_offsets_per_trigger: int | None = None
    group_id: str | None = None

    @property
    def starts_at_log_start(self) -> bool:
        """Whether the read begins at the log start of a partition."""
        return EARLIEST in _codes(self.starting)


def parse_read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse the options of a DataFrame reader, whose names are case-insensitive.

    Raises InvalidReadOption.
    """
    names = _STREAM_NAMES if is_stream else _BATCH_NAMES
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - {name.lower() for name in names})
    if unknown:
        kind = "a stream" if is_stream else "a batch"
        raise InvalidReadOption(
            f"{kind} of a topic has no option {unknown[0]!r}: its options are {', '.join(names)}"
        )
    for name in ("root", "topic"):
        if not given.get(name):
            raise InvalidReadOption(f'set .option("{name}", ...) to read a topic')
    topic = given["topic"]
    starting = given.get("startingoffsets", "latest" if is_stream else "earliest")
    ending = given.get("endingoffsets", "latest")
    per_trigger = given.get("maxoffsetspertrigger")
    return ReadOptions(
        # Executors have working directories of their own.
        root=absolute_uri(given["root"]),
        topic=topic,
        starting=_parse_offsets(
            "startingOffsets", starting, topic, refused=None if is_stream else LATEST
        ),
        ending=_parse_offsets("endingOffsets", ending, topic, refused=EARLIEST),
        fail_on_data_loss=_parse_bool("failOnDataLoss", given.get("failondataloss", "true")),
        max_records_per_partition=_parse_count(
            "maxRecordsPerPartition", given.get("maxrecordsperpartition", str(_MOST_RECORDS))
        ),
        max_offsets_per_trigger=(
            None if per_trigger is None else _parse_count("maxOffsetsPerTrigger", per_trigger)
        ),
        group_id=given.get("groupidforprogress"),
    )


def _parse_offsets(name: str, text: str, topic: str, refused: int | None) -> int | TopicOffsets:
    wanted = _WORDS.get(text.strip().lower()) or _parse_position(name, text, topic)
    if refused in _codes(wanted):
        raise InvalidReadOption(f"{name} cannot be {'latest' if refused == LATEST else 'earliest'}")
    return wanted


def _codes(wanted: int | TopicOffsets) -> Collection[int]:
    """Return the offsets, among which are the codes EARLIEST and LATEST."""
    return wanted.offsets.values() if isinstance(wanted, TopicOffsets) else [wanted]


def _parse_position(name: str, text: str, topic: str) -> TopicOffsets:
    try:
        position = decode_topic_offsets(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        example = f'{{"{topic}": {{"0": 23, "1": -2}}}}'
        raise InvalidReadOption(
            f"{name} is neither earliest, latest nor JSON like {example}: {error}"
        ) from error
    if position.topic != topic:
        raise InvalidReadOption(f"{name} names topic {position.topic!r}, not {topic!r}")
    if any(offset < EARLIEST for offset in position.offsets.values()):
        raise InvalidReadOption(f"{name} has an offset below -2: -2 is earliest, -1 is latest")
    return position


def _parse_bool(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidReadOption(f"{name} is {text!r}, and must be true or false")
    return text.lower() == "true"


def _parse_count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidReadOption(f"{name} is {text!r}, and must be a number of at least 1")
    return int(text)


def decode_topic_offsets(position: Any) -> TopicOffsets:
    """Return a position from its JSON objects. Raises msgspec.DecodeError."""
    topics = msgspec.convert(position, dict[str, dict[str, int | str]])
    if len(topics) != 1:
        raise msgspec.ValidationError(f"it names {len(topics)} topics instead of one")
    ((topic, entries),) = topics.items()
    topic_id = entries.pop(_TOPIC_ID, None)
    return TopicOffsets(
        topic,
        None if topic_id is None else str(topic_id),
        msgspec.convert(entries, dict[int, int], strict=False),
    )


def resolve_offsets(name: str, wanted: int | TopicOffsets, bounds: TopicBounds) -> TopicOffsets:
    """Return the position that the option `name` stands for, with an offset for each partition.

    Raises InvalidReadOption for offsets of other partitions or after the log end, and RecordsLost
    for offsets of an earlier topic of this name. An offset before the log start is returned: the
    reader of the partition finds whether its records still exist.
    """
    if wanted == EARLIEST:
        return TopicOffsets(bounds.topic, bounds.topic_id, bounds.starts)
    if not isinstance(wanted, TopicOffsets):
        return bounds.end()
    if (replaced := topic_replaced(wanted, bounds.topic_id)) is not None:
        raise replaced
    if wanted.offsets.keys() != bounds.ends.keys():
        raise InvalidReadOption(
            f"{name} must have an offset for each partition of topic {bounds.topic!r}, 0 to "
            f"{len(bounds.ends) - 1}: -2 is earliest, -1 is latest"
        )
    offsets = {}
    for number, offset in wanted.offsets.items():
        known = {EARLIEST: bounds.starts[number], LATEST: bounds.ends[number]}
        offsets[number] = known.get(offset, offset)
        if offset > bounds.ends[number]:
            raise InvalidReadOption(
                f"{name} has offset {offset} of partition {number}, and topic {bounds.topic!r} "
                f"ends there at offset {bounds.ends[number]}"
            )
    return TopicOffsets(bounds.topic, bounds.topic_id, offsets)


def topic_replaced(position: TopicOffsets, topic_id: str | None) -> RecordsLost | None:
    """Return the error of a position in an earlier topic of the same name; None if it is not."""
    if position.topic_id in (None, topic_id):
        return None
    return RecordsLost(
        f"topic {position.topic!r} was deleted and created again: its id is {topic_id}, and the "
        f"query was in the topic with id {position.topic_id}. Start the query with a new "
        "checkpointLocation, or with failOnDataLoss=false"
    )


def log_shortened(topic: str, partition: int, end: int, wanted: int) -> RecordsLost:
    """Return the error of a partition that ends before an offset that a query has planned."""
    return RecordsLost(
        f"partition {partition} of topic {topic!r} ends at offset {end}, and the query was at "
        f"offset {wanted}: was an older copy of the root restored?"
    )


def known_offsets(start: TopicOffsets, end: TopicOffsets) -> dict[int, int]:
    """Return the offset at which each partition of `end` begins.

    It is 0 for a partition that was added after `start`, and for all partitions of a topic that was
    created again after `start`.
    """
    is_same = start.topic_id in (None, end.topic_id)
    return {number: start.offsets.get(number, 0) if is_same else 0 for number in end.offsets}


def limit_offsets(start: Mapping[int, int], end: Mapping[int, int], most: int) -> dict[int, int]:
    """Return offsets between `start` and `end` with about `most` records before them.

    Partitions share `most` in proportion to their records. As in the Kafka source, a partition with
    records gets at least one, so that small partitions make progress. Source: Spark,
    KafkaMicroBatchStream.rateLimit.
    """
    sizes = {number: max(0, end[number] - start[number]) for number in end}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {
        number: start[number] + max(1, size * most // total) if size else end[number]
        for number, size in sizes.items()
    }


def split_range(start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of offsets, each of at most `most`, of about equal sizes."""
    count = math.ceil(max(0, end - start) / most)
    places = [start + (end - start) * part // count for part in range(count)]
    yield from pairwise([*places, end])
