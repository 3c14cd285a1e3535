"""Topics' own tables: old records go in whole files, small files become one, offsets stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.data_file import DataFile, data_files
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS, UpkeepSettings
from group_coordinator.pipeline.tables.store import TableMissing, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import delete_topic
from group_coordinator.pipeline.topics import (
    OffsetOutOfRange,
    PartitionSegments,
    Segment,
    TopicConfig,
    create_log_topic,
)
from group_coordinator.pipeline.upkeep import topic_retention
from group_coordinator.pipeline.upkeep.retention import LEAST_FILES, RetentionResult
from group_coordinator.pipeline.upkeep.topic_retention import (
    SENT_AGAIN_MS,
    expired,
    packs,
    retain_topics,
)
from group_coordinator.schemas.tables import TOPICS
from tests.clocks import AheadClocks
from tests.pipeline.topics.logs import appender, batch, make, of_producer, offsets, values
from tests.pipeline.topics.tables import caught_up, opened

NOON = 20_000 * DAY_MS + 12 * HOUR_MS


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def retain(root: str, now: int = NOON) -> dict[str, RetentionResult]:
    results = retain_topics(root, UpkeepSettings(), now, lambda _: None)
    assert [result.failure for result in results if result.failure] == []
    return {result.table: result for result in results}


def test_records_past_their_time_go_and_the_log_start_rises(root: str) -> None:
    topic = make(root, 1, retention_ms=str(HOUR_MS))
    writer = appender(topic)
    for number, age in enumerate((3 * HOUR_MS, 2 * HOUR_MS, 60_000, 2 * HOUR_MS)):
        writer.append([batch(0, str(number), at=NOON - age)])
    topics = opened(root)
    assert retain(root)["t"].records_after == 2
    caught_up(topics)
    assert (topics.log_start("t", 0), topics.log_end("t", 0)) == (2, 4)
    assert values(topics) == [(2, "2"), (3, "3")], "only the oldest go, as in Kafka"
    with pytest.raises(OffsetOutOfRange):
        topics.read("t", 0, 1, 1_000, 10)


def test_a_partition_without_records_goes_on_from_its_end(root: str) -> None:
    topic = make(root, 1, retention_ms="0")
    writer = appender(topic)
    writer.append([batch(0, "a", "b")])
    retain(root)
    topics = opened(root)
    assert (topics.log_start("t", 0), topics.log_end("t", 0)) == (2, 2)
    assert topics.read("t", 0, 2, 1_000, 10) == []
    assert offsets(appender(topic).append([batch(0, "c")])) == [2]
    assert offsets(writer.append([batch(0, "d")])) == [3]


def test_more_than_its_bytes_a_partition_does_not_keep(root: str) -> None:
    topic = make(root, 2, retention_bytes="5000", retention_ms="-1")
    writer = appender(topic)
    for number in range(10):
        writer.append([batch(0, str(number)), *([batch(1, "other")] if number == 0 else [])])
    sizes = [file.size for file in data_files(DeltaTable(topic.table))]
    assert sum(sizes) > 10_000
    retain(root)
    topics = opened(root)
    kept = [offset for offset, _ in values(topics)]
    assert kept == list(range(kept[0], 10))
    assert 0 < len(kept) < 7
    assert values(topics, 1) == [(0, "other")]


@pytest.mark.parametrize("bound", [{"retention_ms": "0"}, {"retention_bytes": "0"}])
def test_a_batch_that_its_producer_may_send_again_is_known(
    root: str, bound: dict[str, str]
) -> None:
    """Its records, whose times are its own, may be past the retention as they are written."""
    topic = make(root, 1, **bound)
    appender(topic).append([of_producer(0, "a")])
    now = clock_ms()
    retain(root, now + SENT_AGAIN_MS - 60_000)
    assert offsets(appender(topic).append([of_producer(0, "a")])) == [0]
    assert values(opened(root)) == [(0, "a")]
    retain(root, now + SENT_AGAIN_MS + 60_000)
    assert values(opened(root)) == []


def partition_of(*spans: tuple[int, int]) -> PartitionSegments:
    """Segments of ten bytes each, by their first offsets and ends."""
    partition = PartitionSegments()
    for base, end in spans:
        partition.take(Segment(DataFile(f"{base}-{end}", 10, NOON, 1), base, end, NOON, NOON))
    return partition


@pytest.mark.parametrize(("most", "gone"), [(0, 3), (10, 2), (11, 1), (20, 1), (30, 0)])
def test_at_least_its_bytes_a_partition_keeps(most: int, gone: int) -> None:
    partition = partition_of((0, 5), (5, 9), (9, 12))
    config = TopicConfig(retention_ms=-1, retention_bytes=most)
    assert len(expired(partition, config, NOON)) == gone


def test_files_that_overlap_are_not_packed_together() -> None:
    config = TopicConfig(retention_ms=-1)
    apart = partition_of(*((n, n + 1) for n in range(LEAST_FILES)))
    assert [len(run) for run in packs(apart.segments, config)] == [LEAST_FILES]
    overlapping = partition_of(*((n, n + 2) for n in range(LEAST_FILES)))
    assert list(packs(overlapping.segments, config)) == []


def test_small_files_become_one_and_readers_and_writers_go_on(root: str) -> None:
    topic = make(root, 2)
    writer, topics = appender(topic), opened(root)
    for number in range(LEAST_FILES + 2):
        writer.append([of_producer(number, f"v{number}"), batch(0, "x"), batch(1, "y")])
    before = values(caught_up(topics))
    result = retain(root, 2_000)["t"]
    assert (result.records_before, result.records_after) == (30, 30)
    assert (result.files_before, result.files_after) == (20, 2)
    assert values(caught_up(topics)) == before == values(opened(root))
    # What the producer wrote last is known from the packed file, too.
    again = [of_producer(LEAST_FILES + 1, f"v{LEAST_FILES + 1}"), of_producer(LEAST_FILES + 2, "z")]
    assert offsets(appender(topic).append(again)) == [18, 20]
    assert offsets(writer.append(again)) == [18, 20]


def test_files_of_different_days_are_not_packed_together(root: str) -> None:
    topic = make(root, 1, retention_ms="-1")
    writer = appender(topic)
    for number in range(2 * LEAST_FILES):
        day = NOON if number < LEAST_FILES else NOON + DAY_MS
        writer.append([batch(0, str(number), at=day)])
    assert retain(root)["t"].files_after == 2


def test_a_large_file_is_not_packed_again_with_a_few_small_ones(root: str) -> None:
    topic = make(root, 1, retention_ms="-1")
    writer = appender(topic)
    writer.append([batch(0, *(f"{n:0500}" for n in range(500)))])
    for number in range(LEAST_FILES):
        writer.append([batch(0, str(number))])
    before = values(opened(root))
    assert retain(root)["t"].files_after == 2
    assert values(opened(root)) == before
    assert retain_topics(root, UpkeepSettings(), NOON, lambda _: None, thorough=False) == []


def test_what_another_node_packs_meanwhile_is_packed_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root, 2, retention_ms="-1")
    writer = appender(topic)
    for number in range(LEAST_FILES):
        writer.append([batch(0, str(number)), batch(1, str(number))])
    pack, others = topic_retention._pack, iter([True])

    def with_another(*arguments: Any) -> None:
        # Both have looked up what is to be packed; the other one is done before this one begins.
        if next(others, False):
            retain(root)
        pack(*arguments)

    monkeypatch.setattr(topic_retention, "_pack", with_another)
    (result,) = retain_topics(root, UpkeepSettings(), NOON, lambda _: None)
    assert "another process changed" in str(result.failure)
    assert retain(root)["t"].records_after == 2 * LEAST_FILES


def test_a_file_that_was_packed_and_deleted_is_read_from_the_packed_one(root: str) -> None:
    topic = make(root, 1)
    writer = appender(topic)
    for number in range(LEAST_FILES):
        writer.append([batch(0, str(number))])
    topics = opened(root)
    retain(root, 2_000)
    DeltaTable(topic.table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    # The reader has not looked at the log since.
    assert [record.offset for record in topics.read("t", 0, 3, 1_000, 2)] == [3, 4]


def test_the_table_of_a_deleted_topic_goes(root: str) -> None:
    topic = make(root)
    appender(topic).append([batch(0, "a")])
    delete_topic(root, "t")
    now = clock_ms()
    retain(root, now)
    assert Path(topic.table).exists(), "it may be one that is just being created"
    create_log_topic(root, "t", 1)
    retain(root, now + 2 * HOUR_MS)
    assert not Path(topic.table).exists()
    assert values(opened(root)) == []


def test_no_table_goes_while_the_catalogue_is_away(root: str) -> None:
    """A topic that the catalogue does not have would be one that was deleted long ago."""
    topic = make(root)
    appender(topic).append([batch(0, "a")])
    catalogue = Path(table_uri(root, TOPICS))
    away = catalogue.rename(f"{root}/away")
    with pytest.raises(TableNotFoundError):
        retain(root, clock_ms() + 2 * HOUR_MS)
    away.rename(catalogue)
    assert values(opened(root)) == [(0, "a")]


def test_a_catalogue_that_is_gone_is_not_made_anew_beside_topics_with_tables(root: str) -> None:
    """They would not be in the new one, and their tables go as those of deleted topics."""
    topic = make(root)
    catalogue = Path(table_uri(root, TOPICS))
    gone = catalogue.rename(f"{root}/gone")
    with pytest.raises(TableMissing, match=rf"{catalogue} cannot be found: restore it"):
        create_log_topic(root, "other", 1)
    assert not catalogue.exists()
    gone.rename(catalogue)
    create_log_topic(root, "other", 1)
    assert retain(root, clock_ms() + 2 * HOUR_MS).keys() == {"t", "other"}
    assert Path(topic.table).exists()


def test_it_stays_for_an_hour_for_appenders_that_have_not_heard_of_it(root: str) -> None:
    """In a store they would go on in an empty place."""
    before = make(root)
    delete_topic(root, "t")
    topic = make(root)
    create_log_topic(root, "other", 1)
    for hours, name in ((2, "other"), (5, "t")):
        with clock.use(AheadClocks(wall_s=hours * HOUR_MS / 1_000)):
            delete_topic(root, name)
            now = clock_ms()
    retain(root, now + HOUR_MS // 2)
    assert (Path(before.table).exists(), Path(topic.table).exists()) == (False, True)
    retain(root, now + 2 * HOUR_MS)
    assert not Path(topic.table).exists()
