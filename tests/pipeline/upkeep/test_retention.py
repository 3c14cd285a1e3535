"""Old rows go with their files, small files become one, and nobody who follows a table notices."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import RemoveAction

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import store_check
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.data_file import DataFile, data_files
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.table_files import Engine
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS, UpkeepSettings
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.upkeep import schedule as upkeep_module
from group_coordinator.pipeline.upkeep.retention import (
    LEAST_FILES,
    RetentionResult,
    packs,
    retain,
    retentions,
    vacuum,
)
from group_coordinator.pipeline.upkeep.schedule import Upkeep
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent, Response
from group_coordinator.schemas.tables import (
    OFFSETS_TOPIC,
    REQUESTS,
    RESPONSES,
    to_arrow,
    to_requests,
)
from tests.pipeline.damage import damage, spoil
from tests.pipeline.offsets_log import Log, commit, upkeep

# An hour between two UTC days: all that a test writes is of one day then.
NOON = 500 * DAY_MS + 12 * HOUR_MS


def ask(root: str, *ids: str, sent_at: int | None = None) -> None:
    """Append requests, each in a commit of its own."""
    appender = Appender(Path(table_uri(root, REQUESTS)))
    for request_id in ids:
        body = HeartbeatRequest(1, "m")
        event = RequestEvent(request_id, "g", "heartbeat", sent_at=sent_at, heartbeat=body)
        appender.append(to_requests([event]))


def handle(root: str) -> DeltaTable:
    return DeltaTable(table_uri(root, REQUESTS))


def ids(root: str) -> list[str]:
    return sorted(handle(root).to_pyarrow_table().column("request_id").to_pylist())


def run(root: str, now: int, **settings: int) -> dict[str, RetentionResult]:
    results = retain(root, upkeep(**settings), now, lambda _: None)
    assert [result.failure for result in results if result.failure] == []
    return {result.table: result for result in results}


# --- retention ------------------------------------------------------------------------------------


def test_files_go_when_their_newest_row_is_past_the_retention(root: str):
    ask(root, "1", "2")
    first, *_, last = (file.modified_ms for file in data_files(handle(root)))
    kept = run(root, first + 7 * DAY_MS)["requests"]
    assert (kept.records_before, kept.records_after) == (2, 2)
    gone = run(root, last + 7 * DAY_MS + 1)["requests"]
    assert (gone.records_before, gone.records_after, gone.files_after) == (2, 0, 0)
    assert ids(root) == []


def test_a_request_counts_from_when_it_was_written_whatever_its_sender_says(root: str):
    ask(root, "old clock", sent_at=1)
    ask(root, "no clock")
    run(root, data_files(handle(root))[0].modified_ms + HOUR_MS)
    assert ids(root) == ["no clock", "old clock"]


@pytest.mark.parametrize("name", ["requests", "responses", "group_events"])
def test_less_than_an_hour_is_refused(name: str):
    with pytest.raises(msgspec.ValidationError, match="3600000"):
        msgspec.convert({f"{name}.retention.ms": HOUR_MS - 1}, UpkeepSettings)


def test_answers_must_outlive_their_requests():
    """By two days: one for packed files, and one for a client's clock that is wrong by a day."""
    with pytest.raises(msgspec.ValidationError, match="at least two days more"):
        msgspec.convert({"responses.retention.ms": 9 * DAY_MS - 1}, UpkeepSettings)


def test_a_client_whose_clock_is_a_day_fast_has_its_requests_removed_before_their_answers(
    root: str,
):
    """Packed with later requests, a request is removed a day late; its answer later still."""
    requests, answers = (
        UpkeepSettings().requests_retention_ms,
        UpkeepSettings().responses_retention_ms,
    )
    asked_ms = NOON
    by_its_clock_ms = asked_ms + DAY_MS
    packed_ms = by_its_clock_ms + DAY_MS - 1
    assert packed_ms + requests < asked_ms + answers
    kept = {table.name: kept_ms for table, kept_ms in retentions(UpkeepSettings())}
    assert kept["rejected_requests"] == kept["responses"] == answers


def test_a_node_whose_clock_is_not_the_store_s_deletes_no_file(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    ask(root, "1")
    orphan = Path(root, "requests", "part-of-an-append-under-way.parquet")
    orphan.write_bytes(b"")
    os.utime(orphan, (time.time() - 4 * 3600, time.time() - 4 * 3600))
    for ahead_ms, told in ((DAY_MS, r"86,400 s ahead of"), (-DAY_MS, r"86,400 s behind")):
        monkeypatch.setattr(
            store_check, "clock_ms", lambda ahead_ms=ahead_ms: clock_ms() + ahead_ms
        )
        results = {r.table: r for r in retain(root, upkeep(), NOON, lambda _: None)}
        assert re.search(told, results["requests"].line())
        assert orphan.exists()
    monkeypatch.setattr(store_check, "clock_ms", lambda: clock_ms() + 60_000)
    results = {r.table: r for r in retain(root, upkeep(), NOON, lambda _: None)}
    assert results["requests"].failure is None
    assert not orphan.exists()
    assert not list(Path(root, "requests").glob("_clock*"))


def test_a_table_that_fails_does_not_keep_the_others_from_it(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    ask(root, "1")
    original = vacuum

    def failing(table: DeltaTable, name: str, retention_hours: int) -> int:
        if name == "requests":
            raise OSError("no space left on device")
        return original(table, name, retention_hours)

    monkeypatch.setattr("group_coordinator.pipeline.upkeep.retention.vacuum", failing)
    results = {r.table: r for r in retain(root, upkeep(), NOON, lambda _: None)}
    assert results["requests"].line() == "requests: no space left on device"
    assert results["responses"].failure is None


# --- packing --------------------------------------------------------------------------------------


def day(hour: int, size: int = 10, **partition: str) -> DataFile:
    return DataFile(f"{hour}-{partition}", size, NOON + hour * HOUR_MS, 1, dict(partition))


def test_small_files_of_a_day_and_partition_become_one():
    today = [day(i % 10, segment="1") for i in range(LEAST_FILES)]
    tomorrow = [day(24, segment="1")] * LEAST_FILES
    elsewhere = [day(i % 10, segment="2") for i in range(LEAST_FILES)]
    assert [len(batch) for batch in packs([*today, *tomorrow, *elsewhere])] == [LEAST_FILES] * 3


def test_few_files_large_files_and_files_of_no_partition_are_left_as_they_are():
    few = [day(0)] * (LEAST_FILES - 1)
    large = [day(1, size=100 << 20)] * LEAST_FILES
    stray = [DataFile("x", 1, NOON, 1, {"segment": None})] * LEAST_FILES
    assert list(packs([*few, *large, *stray])) == []


@pytest.mark.slow
def test_packing_keeps_rows_and_their_age_and_a_reader_that_lags_gets_them_once(root: str):
    names = [f"{i:02}" for i in range(2 * LEAST_FILES)]
    tail = follow(table_uri(root, REQUESTS), ["request_id"])
    ask(root, *names)
    written = data_files(handle(root))[-1].modified_ms
    result = run(root, written)["requests"]
    # Two, should a day have ended meanwhile.
    assert result.files_after <= 2
    assert (result.files_before, result.records_after) == (len(names), len(names))
    assert data_files(handle(root))[-1].modified_ms == written
    assert ids(root) == names
    ask(root, "more")
    seen = tail.poll()
    assert seen is not None
    assert seen.column("request_id").to_pylist() == [*names, "more"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column"),
    [("heartbeat", pa.array([1.5])), ("client_id", pa.array([b"caf\xe9"]).view(pa.string()))],
    ids=["another type", "not UTF-8"],
)
def test_a_file_that_does_not_fit_its_table_stays_and_the_others_are_packed(
    root: str, name: str, column: pa.Array
):
    ask(root, *(str(number) for number in range(LEAST_FILES)))
    body = HeartbeatRequest(1, "m")
    rows = to_requests([RequestEvent("odd", "g", "heartbeat", heartbeat=body)])
    odd = rows.set_column(rows.schema.get_field_index(name), name, column)
    Appender(Path(table_uri(root, REQUESTS))).append(odd)
    ask(root, *(str(number) for number in range(LEAST_FILES, 2 * LEAST_FILES)))
    result = run(root, clock_ms())["requests"]
    assert (result.records_before, result.records_after) == (17, 17)
    assert result.files_before == 17
    assert result.files_after <= 6
    left = set(Path(table_uri(root, REQUESTS)).glob("*.parquet"))
    assert len(left) == result.files_before + result.files_after - 1, "no file that is nobody's"


@pytest.mark.slow
@pytest.mark.parametrize("harm", [spoil, partial(damage, column="request_id")])
def test_a_damaged_file_stays_and_the_others_are_packed(root: str, harm: Callable[[str], str]):
    ask(root, *(str(number) for number in range(LEAST_FILES)))
    name = harm(root)
    ask(root, *(str(number) for number in range(LEAST_FILES, 2 * LEAST_FILES)))
    result = run(root, clock_ms())["requests"]
    assert (result.records_before, result.records_after) == (16, 16)
    assert result.files_after <= 6
    assert name in {file.path for file in data_files(handle(root))}
    left = set(Path(table_uri(root, REQUESTS)).glob("*.parquet"))
    assert len(left) == result.files_before + result.files_after - 1, "no file that is nobody's"


def test_a_store_that_fails_is_not_taken_for_damaged_files(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    ask(root, *(str(number) for number in range(LEAST_FILES)))

    def fail(_engine: Engine, _sql: str) -> None:
        raise Failure("DuckDB: the store does not answer")

    monkeypatch.setattr(Engine, "run", fail)
    failures = {each.table: each.failure for each in retain(root, upkeep(), clock_ms())}
    assert failures["requests"] == "DuckDB: the store does not answer"
    assert len(data_files(handle(root))) == LEAST_FILES


def test_a_packed_file_says_that_no_data_changed(root: str):
    ask(root, *map(str, range(2 * LEAST_FILES)))
    run(root, NOON)
    lines = [
        msgspec.json.decode(line)
        for path in sorted(Path(table_uri(root, REQUESTS), "_delta_log").glob("*.json"))
        for line in path.read_bytes().splitlines()
        if b'"remove"' in path.read_bytes()
    ]
    changes = [
        line[kind]["dataChange"] for line in lines for kind in ("add", "remove") if kind in line
    ]
    assert changes
    assert not any(changes)


def test_the_offsets_topic_is_packed_segment_by_segment(tmp_path: Path):
    log = Log(str(tmp_path))
    for i in range(LEAST_FILES):
        log.append(commit("g", i, i))
    log.roll()
    log.append(commit("g", 9, 9))
    run(str(tmp_path), NOON)
    assert log.read() == log.records
    assert log.segments() == {0, 1}
    assert len(DeltaTable(table_uri(str(tmp_path), OFFSETS_TOPIC)).file_uris()) <= 3


def test_vacuum_leaves_what_is_young_and_no_version_for_nothing(root: str):
    ask(root, *map(str, range(LEAST_FILES)))
    folder = Path(table_uri(root, REQUESTS))
    orphan = folder / "part-of-an-append.parquet"
    orphan.write_bytes(b"not committed yet")
    run(root, NOON)
    assert orphan.exists()
    assert len(list(folder.glob("*.parquet"))) >= LEAST_FILES + 2
    version = handle(root).version()
    run(root, NOON)
    assert handle(root).version() == version


def test_a_removed_file_is_named_as_long_as_vacuum_keeps_it(root: str):
    ask(root, "1")

    def kept() -> str:
        return handle(root).metadata().configuration["delta.deletedFileRetentionDuration"]

    assert kept() == "interval 1 hours"
    version = handle(root).version()
    run(root, NOON, vacuum_retention_ms=4 * HOUR_MS + 1)
    assert (kept(), handle(root).version()) == ("interval 5 hours", version + 1)
    assert ids(root) == ["1"]


@pytest.mark.parametrize(("minutes", "named"), [(30, 1), (90, 0)])
def test_a_checkpoint_names_what_was_removed_within_an_hour(root: str, minutes: int, named: int):
    ask(root, "1")
    (file,) = data_files(handle(root))
    removed = RemoveAction(file.path, True, clock_ms() - minutes * 60_000, file.size, {})
    table = handle(root)
    table.create_write_transaction([removed], "append", table.schema())
    DeltaTable(table.table_uri).create_checkpoint()
    (checkpoint,) = Path(table.table_uri.removeprefix("file://")).glob("_delta_log/*.parquet")
    removes = pq.read_table(checkpoint, columns=["remove"]).column(0)
    assert len(removes) - removes.null_count == named


@pytest.mark.parametrize(("days", "known"), [(6, True), (8, False)])
def test_requests_forget_after_a_week_who_wrote_them(root: str, days: int, known: bool):
    ask(root, "1")
    table = handle(root)
    # As a root of an earlier release has it.
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    run(root, NOON)
    written = Transaction("producer-1", 7, clock_ms() - days * DAY_MS)
    table.update_incremental()
    table.create_write_transaction(
        [], "append", table.schema(), commit_properties=CommitProperties(app_transactions=[written])
    )
    DeltaTable(table.table_uri).create_checkpoint()
    assert handle(root).transaction_version("producer-1") == (7 if known else None)


# --- the schedule ---------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


def scheduled(root: str, clock: Clock) -> Upkeep:
    return Upkeep(root, upkeep(log_cleaner_backoff_ms=100, retain_interval_ms=250), clock)


def test_each_is_due_an_interval_after_it_ended(root: str):
    clock = Clock()
    upkeep = scheduled(root, clock)
    assert upkeep.run_due(1099) == []
    assert upkeep.run_due(1100) == ["compaction"]
    assert upkeep.wait(60)
    assert upkeep.run_due(1249) == ["compaction"]
    clock.now = 1250
    assert upkeep.wait(60)
    assert upkeep.run_due(1250) == ["retention"]
    assert upkeep.stop(60)
    assert upkeep.run_due(9999) == []


@pytest.mark.parametrize("error", [Failure("the disk is full"), ValueError("a bug")])
def test_a_failure_is_logged_and_tried_again(
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(upkeep_module, "compact", fail)
    clock = Clock()
    upkeep = scheduled(root, clock)
    for now in (1100, 1200):
        clock.now = now
        assert upkeep.run_due(now) == ["compaction"]
        assert upkeep.wait(60)
    assert caplog.text.count("compaction failed; the next attempt is in 0 s") == 2


def test_it_can_be_stopped_between_its_steps(root: str, monkeypatch: pytest.MonkeyPatch):
    upkeep = scheduled(root, Clock())

    def endless(_root: str, _settings: object, _now: int, say: object) -> None:
        assert callable(say)
        while True:
            say("on and on")

    monkeypatch.setattr(upkeep_module, "compact", endless)
    upkeep.run_due(1100)
    assert upkeep.stop(60)


def test_answers_are_packed_too(root: str):
    appender = Appender(Path(table_uri(root, RESPONSES)))
    for i in range(LEAST_FILES):
        appender.append(to_arrow(RESPONSES, [Response(str(i), "g", "heartbeat", 0, "NONE")]))
    assert run(root, NOON)["responses"].records_after == LEAST_FILES
