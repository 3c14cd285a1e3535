"""The source of the stream: bootstrap before requests, each event once, and again the same."""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable

from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.data_file import Layout
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.tail import Position
from group_coordinator.pipeline.node.bootstrap import number_of_requests_table
from group_coordinator.pipeline.stream import event_tables, packed_events, request_pages
from group_coordinator.pipeline.stream.event_source import EventReader
from group_coordinator.pipeline.stream.event_tables import EventsGoneError, SourceOptions
from group_coordinator.pipeline.stream.offset import (
    Selection,
    SelectionChange,
    change_row,
    offset_of,
)
from group_coordinator.pipeline.stream.packed_events import (
    FIRST_KEY,
    KEY_WIDTH,
    MOST_GROWTH,
    NO_TIME,
    PACKED_SCHEMA,
    pack_rows,
    select_rows,
    unpack,
)
from group_coordinator.pipeline.tables import request_log
from group_coordinator.pipeline.tables.request_log import TAG, RequestLog, in_lanes
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.schemas.decoding import Malformed, decode_request
from group_coordinator.schemas.messages import LeaveGroupRequest, RequestEvent
from group_coordinator.schemas.tables import REQUESTS, to_requests
from tests.pipeline.damage import damage, spoil
from tests.pipeline.rows import heartbeat
from tests.pipeline.stream.clock import Clock


def leave(request_id: str, group_id: str) -> RequestEvent:
    return RequestEvent(request_id, group_id, "leave_group", leave_group=LeaveGroupRequest(()))


# A bootstrap that is never read to its end: nobody asks for requests before it is.
NEVER = 1 << 30


@pytest.fixture
def read(root: str, tmp_path: Path, bootstrap: Appender):
    """Open a reader of the root's requests and the bootstrap, with other bounds if asked for."""

    def open_reader(**other: Any) -> EventReader:
        wanted = SourceOptions(
            requests=table_uri(root, REQUESTS),
            bootstrap=str(tmp_path / "bootstrap"),
            bootstrap_version=1,
            bootstrap_end=NEVER,
            first_version=1,
            wait_ms=1,
            max_files=100,
            max_bytes=1 << 20,
            max_request_bytes=1 << 20,
        )
        return EventReader(msgspec.structs.replace(wanted, **other))

    return open_reader


def events(batches) -> list[tuple[str | None, str]]:
    """The groups and their events, in the order of their keys."""
    found = [
        (row["group_id"], text)
        for batch in batches
        for row in batch.to_pylist()
        for text in row["events"].split("\n")
    ]
    return sorted(found, key=lambda event: event[1][:KEY_WIDTH])


def ids(batches) -> list[str]:
    return [json.loads(text[KEY_WIDTH:])["request_id"] for _, text in events(batches)]


def all_ids(reader: EventReader, at: dict[str, Any]) -> list[list[str]]:
    """The ids of batch after batch, until there are no more."""
    found = []
    while True:
        batch, end = reader.read(at)
        if end == at:
            return found
        replayed = list(reader.readBetweenOffsets(at, end))
        found.append(ids(batch))
        assert ids(replayed) == found[-1], "a batch that is run again"
        at = end


def test_requests_come_once_from_the_first_version_on(log, read):
    log.append([heartbeat("before")])
    reader = read(first_version=2)
    log.append([heartbeat("a"), heartbeat("b", "h")])
    log.append([heartbeat("c")])
    batch, end = reader.read(reader.initialOffset())
    assert sorted(ids(batch)) == ["a", "b", "c"]
    assert reader.read(end)[1] == end
    log.append([heartbeat("d")])
    assert all_ids(reader, end) == [["d"]]


def test_a_groups_events_are_one_row(log, read):
    log.append([heartbeat(f"{n}", f"g{n % 2}") for n in range(10)])
    log.append([heartbeat("10", "g0")])
    reader = read()
    batch, _ = reader.read(reader.initialOffset())
    rows = [row for each in batch for row in each.to_pylist()]
    assert [row["group_id"] for row in rows] == ["g0", "g1"]
    assert [len(row["events"].split("\n")) for row in rows] == [6, 5]


def test_the_bootstrap_comes_before_the_requests(log, bootstrap, read):
    log.append([heartbeat("a")])
    texts = ["0" * KEY_WIDTH + f'{{"request_id":"s{n}"}}' for n in range(3)]
    for text in texts:
        bootstrap.append(pa.table([["g"], [text]], schema=PACKED_SCHEMA))
    reader = read(max_files=2)
    assert all_ids(reader, reader.initialOffset()) == [["s0", "s1"], ["s2", "a"]]


def test_the_batch_that_has_the_end_of_the_bootstrap_has_the_requests_that_are_there(
    log, bootstrap, read
):
    """Timers run in every batch: one without the heartbeats that wait would end their sessions."""
    log.append([heartbeat("beat")])
    waiting = "4102444800000000".zfill(KEY_WIDTH) + '{"request_id":"waits","group_id":"g"}'
    timeless = NO_TIME + '{"request_id":"timeless","group_id":"g"}'
    rows = pa.table([["g"] * 3, [waiting, timeless, FIRST_KEY + WAKE_EVENT]], schema=PACKED_SCHEMA)
    bootstrap.append(rows)
    reader = read()
    start = reader.initialOffset()
    batch, end = reader.read(start)
    (text,) = [row["events"] for each in batch for row in each.to_pylist()]
    found = unpack([text])
    assert found[0] == WAKE_EVENT
    assert [json.loads(each)["request_id"] for each in found[1:]] == ["waits", "timeless", "beat"]
    again = events(reader.readBetweenOffsets(start, end))
    assert unpack([each for _, each in again]) == found


def test_a_batch_is_bounded_by_files_and_by_bytes(log, read, monkeypatch):
    for number in range(5):
        log.append([heartbeat(str(number))])
    bounded = [["0", "1"], ["2", "3"], ["4"]]
    reader = read(max_files=2)
    assert all_ids(reader, reader.initialOffset()) == bounded
    written = in_lanes(to_requests([heartbeat("0")])).rows
    row = select_rows(written, 0, None)
    reader = read(max_bytes=2 * MOST_GROWTH * row.nbytes)
    assert all_ids(reader, reader.initialOffset()) == bounded
    monkeypatch.setattr(event_tables, "_SMALL_BYTES", 0)
    reader = read(max_bytes=2 * max(written.nbytes, pack_rows(written, 0).nbytes))
    assert all_ids(reader, reader.initialOffset()) == bounded


def test_what_many_small_commits_have_is_packed_at_once(log, read, monkeypatch):
    """A member that commits each heartbeat by itself costs its coordinator the reading alone."""
    for number in range(8):
        kind = (heartbeat, leave)[number % 2]
        log.append([kind(f"{number}{row}", f"group-{row}") for row in range(3)])
    packed = []
    pack = packed_events._pack
    monkeypatch.setattr(packed_events, "_pack", lambda rows: packed.append(len(rows)) or pack(rows))
    reader = read()
    found = ids(reader.read(reader.initialOffset())[0])
    assert found == [f"{number}{row}" for number in range(8) for row in range(3)]
    assert packed == [12, 12], "those of the same columns"


def test_a_large_commit_is_many_batches_of_a_row_group_each(root, log, read, monkeypatch):
    log.append([heartbeat("first")])
    rows = to_requests([heartbeat(str(number)) for number in range(6)])
    appender = Appender(Path(table_uri(root, REQUESTS)))
    monkeypatch.setattr(
        "group_coordinator.pipeline.delta.data_file.ROW_GROUP_BYTES", rows.nbytes // 3 + 1
    )
    appender.append(rows)
    reader = read(max_files=1)
    found = all_ids(reader, reader.initialOffset())
    # Between two batches the position is within the commit, and behind it in a look of its own.
    assert [batch for batch in found if batch] == [["first"], ["0", "1"], ["2", "3"], ["4", "5"]]


def test_a_long_group_is_several_rows(log, read, monkeypatch):
    monkeypatch.setattr("group_coordinator.pipeline.stream.packed_events._ROW_CHARS", 500)
    monkeypatch.setattr("group_coordinator.pipeline.stream.packed_events._PIECE_CHARS", 1_000)
    log.append([heartbeat(f"{n:02}") for n in range(20)])
    reader = read()
    batch, _ = reader.read(reader.initialOffset())
    pieces = list(batch)
    assert len(pieces) > 1
    assert max(len(row["events"]) for piece in pieces for row in piece.to_pylist()) < 1_000
    assert ids(pieces) == [f"{n:02}" for n in range(20)]


def test_only_the_groups_of_the_node_s_partitions(log, bootstrap, read):
    groups = [f"group-{n}" for n in range(20)]
    log.append([heartbeat(group, group) for group in groups])
    bootstrap.append(
        pa.table([["other"], ["0" * KEY_WIDTH + '{"request_id":"s"}']], schema=PACKED_SCHEMA)
    )
    reader = read(selection=Selection((0, 3), 4))
    mine = [group for group in groups if partition_for(group, 4) in (0, 3)]
    assert all_ids(reader, reader.initialOffset()) == [["s", *mine]]


def test_a_batch_that_is_run_again_is_what_it_was_whatever_the_node_owns_by_then(log, read):
    groups = [f"group-{n}" for n in range(20)]
    log.append([heartbeat(group, group) for group in groups])
    planner = read(selection=Selection((0, 3), 4), run=6)
    start = planner.initialOffset()
    _, end = planner.read(start)
    assert offset_of(end).run == 6
    for later in (Selection((1,), 4), Selection(None, 4)):
        again = read(selection=later, run=7).readBetweenOffsets(start, end)
        assert ids(again) == [group for group in groups if partition_for(group, 4) in (0, 3)]
        batch, after = read(selection=later, run=7).read(end)
        assert ids(batch) == []
        assert offset_of(after).run == 7, "what comes next is planned by the new run"


def test_what_another_has_answered_before_the_claim_is_passed_over(log, read):
    """The stream may be behind the version up to which the bootstrap has who waits."""
    groups = [f"group-{n}" for n in range(8)]
    by_partition = {group: partition_for(group, 2) for group in groups}
    for version in (1, 2, 3):
        log.append([heartbeat(f"{version} {group}", group) for group in groups])
    claimed = read(selection=Selection((0, 1), 2, {1: 2}), max_files=1)
    expected = [
        [f"{version} {g}" for g in groups if by_partition[g] == 0 or version > 2]
        for version in (1, 2, 3)
    ]
    start = claimed.initialOffset()
    # The offset changes once more when the last version to pass over is behind the stream.
    assert all_ids(claimed, start) == [*expected, []]
    everything = read(selection=Selection(None, 2, {1: 2}), max_files=1)
    assert all_ids(everything, start) == [*expected, []]
    _, end = read(selection=Selection((0, 1), 2, {1: 2})).read(start)
    again = ids(read().readBetweenOffsets(start, end))
    assert sorted(again) == sorted(chain.from_iterable(expected)), (
        "a batch over the version that is run again"
    )
    _, after = read(selection=Selection((0, 1), 2, {1: 2})).read(end)
    assert offset_of(after).selection.passed_over == {}, "it is behind the stream by then"


def of_two(count: int = 8) -> tuple[list[str], list[str]]:
    """Groups of partition 0 and of partition 1, of two partitions."""
    groups = [f"group-{n}" for n in range(count)]
    return tuple([g for g in groups if partition_for(g, 2) == p] for p in (0, 1))


def load(group: str) -> tuple[str, str]:
    return group, FIRST_KEY + f'{{"request_id":"load {group}"}}'


def brought(bootstrap: Appender, *rows: tuple[str, str]) -> None:
    bootstrap.append(
        pa.table([list(each) for each in zip(*rows, strict=True)], schema=PACKED_SCHEMA)
    )


def taken(reader: EventReader, at: dict[str, Any]) -> tuple[list[pa.RecordBatch], dict[str, Any]]:
    batch, end = reader.read(at)
    return list(batch), end


def test_a_running_stream_reads_a_claimed_partition_from_where_the_bootstrap_ends(
    log, bootstrap, read
):
    """Meanwhile the stream has gone on with the requests of its other partitions."""
    (mine, *_), (gained, *_) = of_two()
    reader = read(selection=Selection((0,), 2), run=3, bootstrap_end=1)
    log.append([heartbeat("1", mine), heartbeat("another's", gained)])
    _, at = reader.read(reader.initialOffset())
    # The node looks for what waits in version 1, and writes for a while.
    log.append([heartbeat("2", mine), heartbeat("missed", gained)])
    batch, at = taken(reader, at)
    assert ids(batch) == ["2"]
    brought(bootstrap, load(gained))
    log.append([heartbeat("3", mine), heartbeat("missed too", gained)])
    batch, at = taken(reader, at)
    assert sorted(ids(batch)) == ["3", f"load {gained}"], "not before the change"
    brought(bootstrap, change_row(SelectionChange(3, Selection(None, 2, {1: 1}))))
    log.append([heartbeat("4", mine), heartbeat("new", gained)])
    batch, end = taken(reader, at)
    assert sorted(ids(batch)) == ["4", "missed", "missed too", "new"]
    theirs = [row for each in batch for row in each.to_pylist() if row["group_id"] == gained]
    assert [json.loads(each)["request_id"] for each in unpack([theirs[0]["events"]])] == [
        "missed",
        "missed too",
        "new",
    ]
    assert offset_of(end).missed == {1: 2}, "until it has ended, version 2 is needed"
    # It is run again when the node owns nothing any more.
    again = read(selection=Selection((), 2), run=4, bootstrap_end=3)
    assert sorted(events(again.readBetweenOffsets(at, end))) == sorted(events(batch))
    log.append([heartbeat("5", mine), heartbeat("newer", gained)])
    batch, end = taken(reader, end)
    assert sorted(ids(batch)) == ["5", "newer"]
    assert offset_of(end).missed == {}


def test_a_node_that_was_killed_before_the_change_was_read_misses_nothing(log, bootstrap, read):
    """Its next query is told at once what it selects, and passes over the change."""
    (mine, *_), (gained, *_) = of_two()
    reader = read(selection=Selection((0,), 2), run=3, bootstrap_end=1)
    log.append([heartbeat("another's", gained)])
    log.append([heartbeat("missed", gained), heartbeat("1", mine)])
    _, at = reader.read(reader.initialOffset())
    selected = Selection((0, 1), 2, {1: 1})
    brought(bootstrap, load(gained))
    brought(bootstrap, change_row(SelectionChange(3, selected)))
    brought(bootstrap, (mine, FIRST_KEY + WAKE_EVENT))
    log.append([heartbeat("new", gained)])
    later = read(selection=selected, run=4, bootstrap_end=4, max_files=1)
    found = []
    for _ in range(5):
        start, (batch, at) = at, taken(later, at)
        assert events(later.readBetweenOffsets(start, at)) == events(batch)
        found += [json.loads(text[KEY_WIDTH:]).get("request_id") for _, text in events(batch)]
    assert found == [f"load {gained}", None, "missed", "new"]


def test_a_partition_is_unloaded_in_the_batch_that_reads_no_more_requests_of_it(
    log, bootstrap, read
):
    (mine, *_), lost = of_two()
    reader = read(selection=Selection(None, 2), run=3, bootstrap_end=1, max_files=1)
    unloads = [(group, FIRST_KEY + UNLOAD_EVENT) for group in lost]
    brought(bootstrap, change_row(SelectionChange(3, Selection((0,), 2))), *unloads)
    log.append([heartbeat("1", mine), *(heartbeat(f"to {group}", group) for group in lost)])
    start = reader.initialOffset()
    batch, end = taken(reader, start)
    said = [(group, json.loads(text[KEY_WIDTH:])) for group, text in events(batch)]
    assert {group for group, what in said if what == {"control": "unload"}} == set(lost)
    assert [what["request_id"] for _, what in said if "request_id" in what] == ["1"]
    assert offset_of(end).selection == Selection((0,), 2)
    assert events(read(run=4).readBetweenOffsets(start, end)) == events(batch)


def test_the_stream_goes_on_while_a_large_bootstrap_is_read(log, bootstrap, read):
    (mine, *_), (gained, *_) = of_two()
    reader = read(selection=Selection((0,), 2), run=3, bootstrap_end=1, max_files=2)
    for number in range(5):
        brought(bootstrap, (gained, FIRST_KEY + f'{{"request_id":"load {number}"}}'))
    brought(bootstrap, change_row(SelectionChange(3, Selection(None, 2, {1: 0}))))
    at, found = reader.initialOffset(), []
    for number in range(3):
        log.append([heartbeat(f"{number}", mine), heartbeat(f"gained {number}", gained)])
        batch, at = taken(reader, at)
        found.append(sorted(ids(batch)))
    assert found[:2] == [["0", "load 0", "load 1"], ["1", "load 2", "load 3"]]
    assert found[2] == ["2", "gained 0", "gained 1", "gained 2", "load 4"]


def test_what_names_no_group_is_partition_0_s(root, read):
    write_deltalake(
        table_uri(root, REQUESTS), pa.Table.from_pylist([{}], REQUESTS.schema), mode="append"
    )
    for partition, expected in ((0, [(None, f"{1:0{KEY_WIDTH}}{{}}")]), (1, [])):
        reader = read(selection=Selection((partition,), 2))
        batch, _ = reader.read(reader.initialOffset())
        assert events(batch) == expected


def test_a_rewrite_brings_nothing_new(root, log, read):
    log.append([heartbeat("a")])
    log.append([heartbeat("b")])
    reader = read()
    _, end = reader.read(reader.initialOffset())
    DeltaTable(table_uri(root, REQUESTS)).optimize.compact()
    log.append([heartbeat("c")])
    assert all_ids(reader, end) == [["c"]]


def test_a_look_waits_for_requests_but_not_for_long(log, read):
    reader = read(wait_ms=50)
    began = time.monotonic()
    batch, end = reader.read(reader.initialOffset())
    assert time.monotonic() - began >= 0.05
    assert (list(batch), end) == ([], reader.initialOffset())
    log.append([heartbeat("a")])
    reader = read(wait_ms=600_000)
    assert ids(reader.read(reader.initialOffset())[0]) == ["a"]


def test_a_file_that_is_gone_is_named(root, log, read):
    log.append([heartbeat("a")])
    (file,) = Path(root, "requests").glob("*.parquet")
    file.unlink()
    reader = read()
    with pytest.raises(
        EventsGoneError, match=r"version 1 of .*requests was deleted before it was read"
    ) as gone:
        reader.read(reader.initialOffset())
    assert file.name in str(gone.value.__cause__)


def cut(root: str, *versions: int) -> None:
    """Clean the log of the requests up, as far as a Delta checkpoint allows."""
    DeltaTable(table_uri(root, REQUESTS)).create_checkpoint()
    for version in versions:
        Path(root, "requests", "_delta_log", f"{version:020}.json").unlink()


def read_until_gone(reader: EventReader, at: dict[str, Any]) -> None:
    while True:
        assert reader.read(at)[1] == at


def test_a_log_that_was_cut_is_not_waited_for(root, log, read, monkeypatch):
    monkeypatch.setattr(identity, "GONE_CHECK_S", 0.01)
    for number in range(3):
        log.append([heartbeat(str(number))])
    cut(root, 1)
    reader = read()
    with pytest.raises(
        EventsGoneError, match=r"version 1 of .*requests was deleted before it was read"
    ):
        read_until_gone(reader, reader.initialOffset())


def test_a_log_that_is_cut_while_the_reader_sleeps_is_not_waited_for(root, log, read, monkeypatch):
    monkeypatch.setattr(identity, "GONE_CHECK_S", 0.01)
    log.append([heartbeat("0")])
    reader = read()
    _, end = reader.read(reader.initialOffset())
    assert reader.read(end)[1] == end, "nothing new, and nothing gone"
    for number in range(1, 4):
        log.append([heartbeat(str(number))])
    cut(root, 2, 3)
    with pytest.raises(
        EventsGoneError, match=r"version 2 of .*requests was deleted before it was read"
    ):
        read_until_gone(reader, end)


@pytest.mark.parametrize("made", [0, 1, 5])
def test_requests_that_were_made_anew_end_the_read(root, log, read, monkeypatch, made):
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    for number in range(3):
        log.append([heartbeat(str(number))])
    reader = read()
    _, end = reader.read(reader.initialOffset())
    assert reader.read(end)[1] == end
    shutil.rmtree(Path(root, "requests"))
    ensure_table(root, REQUESTS)
    for number in range(made):
        RequestLog(root).append([heartbeat(f"new-{number}")])
    with pytest.raises(TableReplacedError, match=r"requests was replaced .*Restart this process"):
        reader.read(end)
    if made < 3:
        with pytest.raises(TableReplacedError, match="but was read up to version 3"):
            read().read(end)


@pytest.mark.parametrize("made", [3, 5])
def test_requests_recreated_before_the_first_comparison_end_the_read(root, log, read, made):
    number = number_of_requests_table(root)
    for request in range(3):
        log.append([heartbeat(str(request))])
    reader = read(requests_table=number)
    _, end = reader.read(reader.initialOffset())
    shutil.rmtree(Path(root, "requests"))
    ensure_table(root, REQUESTS)
    for request in range(made):
        RequestLog(root).append([heartbeat(f"new-{request}")])
    with pytest.raises(TableReplacedError, match="began with another table"):
        read(requests_table=number).read(end)


def test_requests_that_are_away_are_waited_for(root, log, read, monkeypatch, caplog):
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    log.append([heartbeat("a")])
    reader = read()
    _, end = reader.read(reader.initialOffset())
    folder = Path(root, "requests")
    away = folder.rename(Path(root, "away"))
    assert reader.read(end)[1] == end
    assert caplog.text.count("no requests are read") == 1
    away.rename(folder)
    log.append([heartbeat("b")])
    assert ids(reader.read(end)[0]) == ["b"]


def test_a_batch_that_is_run_again_is_whole_or_fails(root, log, read):
    for number in range(3):
        log.append([heartbeat(str(number))])
    reader = read()
    start = reader.initialOffset()
    _, end = reader.read(start)
    cut(root, 2)
    with pytest.raises(
        EventsGoneError, match=r"version 2 of .*requests was deleted before it was read"
    ):
        list(read().readBetweenOffsets(start, end))


A_MINUTE = 60_000


def in_order(batch) -> list[str]:
    """The requests of a batch of one group in the order in which they are decided."""
    texts = unpack([row["events"] for each in batch for row in each.to_pylist()])
    return [json.loads(text)["request_id"] for text in texts]


def test_two_producers_are_in_the_order_of_their_commits_whatever_their_clocks(log, read):
    now = 1_700_000_000_000
    # A's clock is a minute fast. B has seen what A's first commit brought, and commits after it.
    log.append([heartbeat("a1", sent_at=now + A_MINUTE), heartbeat("a2", sent_at=now + A_MINUTE)])
    log.append([heartbeat("b1", sent_at=now)])
    log.append([heartbeat("a3", sent_at=now + A_MINUTE)])
    # And then it is set right.
    log.append([heartbeat("a4", sent_at=now), heartbeat("never", sent_at=None)])
    reader = read()
    batch, end = reader.read(reader.initialOffset())
    expected = ["a1", "a2", "b1", "a3", "a4", "never"]
    assert in_order(batch) == expected
    assert in_order(reader.readBetweenOffsets(reader.initialOffset(), end)) == expected


def test_the_requests_of_a_commit_are_in_the_order_of_its_rows(log, read):
    # The clock of the producer stepped back between the first and the second.
    log.append([heartbeat("z", sent_at=9), heartbeat("a", sent_at=3), heartbeat("b", sent_at=3)])
    reader = read()
    assert in_order(reader.read(reader.initialOffset())[0]) == ["z", "a", "b"]


def test_control_events_come_before_requests_of_any_time(log, bootstrap, read):
    log.append([heartbeat("request", sent_at=-5)])
    reader = read()
    requests, _ = reader.read(reader.initialOffset())
    (text,) = [row["events"] for each in requests for row in each.to_pylist()]
    assert unpack([f"{text}\n{FIRST_KEY}{WAKE_EVENT}"])[0] == WAKE_EVENT


def test_a_request_a_thousand_times_larger_than_any_before_stops_nobody(log, read):
    log.append([heartbeat("before")])
    log.append([large("large", "\x01" * 200_000), heartbeat("beside", "h")])
    log.append([heartbeat("after")])
    reader = read()
    batch, end = reader.read(reader.initialOffset())
    found = {each.request_id: each for each in map(decoded, events(batch))}
    assert list(found) == ["before", "large", "beside", "after"]
    refused = found.pop("large")
    assert isinstance(refused, Malformed)
    assert "more than max.request.size, which is 1048576" in refused.message
    assert all(isinstance(each, RequestEvent) for each in found.values())
    assert sorted(ids(reader.readBetweenOffsets(reader.initialOffset(), end))) == sorted(
        ["before", "large", "after", "beside"]
    )


@pytest.mark.parametrize(("planned", "later"), [(1_000, 1 << 20), (1 << 20, 1_000)])
def test_a_batch_that_is_run_again_refuses_what_it_refused(log, read, planned, later):
    """`max.request.size` was changed between the two runs."""
    log.append([large("large", "x" * 2_000), heartbeat("small")])
    planner = read(max_request_bytes=planned)
    start = planner.initialOffset()
    batch, end = planner.read(start)
    again = read(max_request_bytes=later).readBetweenOffsets(start, end)
    assert events(again) == events(batch)
    _, after = read(max_request_bytes=later).read(end)
    assert offset_of(after).max_request_bytes == later, "what comes next has the new bound"


def test_a_batch_that_an_earlier_release_planned_has_the_bound_of_now(log, read):
    log.append([large("large", "x" * 2_000)])
    start = read().initialOffset()
    _, end = read().read(start)
    del end["max_request_bytes"]
    (event,) = events(read(max_request_bytes=1_000).readBetweenOffsets(start, end))
    assert isinstance(decoded(event), Malformed)


def test_a_request_that_a_bootstrap_brings_again_is_refused_all_the_same(bootstrap, read):
    key = "5" * KEY_WIDTH
    waits = f'{key}{{"request_id":"r","group_id":"g","api":"heartbeat","client_id":"{"x" * 200}"}}'
    load = f'{FIRST_KEY}{{"control":"load","records":[{"1," * 200}1]}}'
    small = f'{key}{{"request_id":"s","group_id":"g","api":"heartbeat","heartbeat":{{}}}}'
    bootstrap.append(pa.table([["g", "g", "g"], [load, waits, small]], schema=PACKED_SCHEMA))
    reader = read(max_request_bytes=150)
    batch, _ = reader.read(reader.initialOffset())
    loaded, refused, other = events(batch)
    assert (loaded, other) == (("g", load), ("g", small))
    assert refused[1].startswith(key)
    size = len(waits) - KEY_WIDTH
    reason = f"the request takes {size} bytes, more than max.request.size, which is 150"
    assert decoded(refused) == Malformed("r", "g", "heartbeat", reason)


def large(request_id: str, client_id: str) -> RequestEvent:
    return RequestEvent(request_id, "g", "heartbeat", client_id=client_id, sent_at=5)


def decoded(event: tuple[str | None, str]) -> RequestEvent | Malformed:
    return decode_request(event[1][KEY_WIDTH:])


def test_a_file_that_is_no_parquet_file_is_rejected_by_name_and_stops_nobody(
    log, read, root, caplog
):
    log.append([heartbeat("before")])
    log.append([heartbeat("lost 1"), heartbeat("lost 2")])
    name = spoil(root)
    log.append([heartbeat("after")])
    reader = read()
    start = reader.initialOffset()
    batch, end = reader.read(start)
    found = events(batch)
    before, after, (group, text) = sorted(found, key=lambda event: event[0] is None)
    assert [decoded(each).request_id for each in (before, after)] == ["before", "after"]
    refused = f"{name} is no Parquet file, so that its requests cannot be read"
    assert (group, json.loads(text[KEY_WIDTH:])) == (None, {"refused": refused})
    (line,) = caplog.messages
    assert line.startswith(f"requests: {name} is no Parquet file: it has 10 bytes")
    result = BatchMachine().process(None, None, unpack([text]), 5)
    (rejected,) = result.output.rejected
    assert rejected.reason == f"no group_id: {refused}"
    assert events(read().readBetweenOffsets(start, end)) == found
    assert reader.read(end)[1] == end


def test_a_batch_may_end_with_a_file_that_is_no_parquet_file(log, read, root):
    for number in range(3):
        log.append([heartbeat(str(number))])
        if number == 1:
            spoil(root)
    reader = read(max_files=1)
    at, found = reader.initialOffset(), []
    while True:
        batch, end = reader.read(at)
        texts = [(group, text[KEY_WIDTH:]) for group, text in events(batch)]
        again = events(read().readBetweenOffsets(at, end))
        assert [(group, text[KEY_WIDTH:]) for group, text in again] == texts
        if end == at:
            break
        found.append([group for group, _ in texts])
        at = end
    assert [groups for groups in found if groups] == [["g"], [None], ["g"]]


@pytest.mark.parametrize(
    ("column", "ids"), [("sent_at", ["lost 1", "lost 2"]), ("request_id", [None, None])]
)
def test_requests_of_a_damaged_row_group_are_refused_by_their_ids_and_stop_nobody(
    log, read, root, caplog, column, ids
):
    log.append([heartbeat("before")])
    log.append([heartbeat("lost 1"), heartbeat("lost 2")])
    name = damage(root, column)
    log.append([heartbeat("after")])
    reader = read()
    start = reader.initialOffset()
    batch, end = reader.read(start)
    found = events(batch)
    reason = f"row group 0 of {name} cannot be decoded"
    before, *refused, after = [decoded(each) for each in found]
    assert (before.request_id, after.request_id) == ("before", "after")
    assert [(each.request_id, each.group_id, each.message) for each in refused] == [
        (request_id, "g", reason) for request_id in ids
    ]
    assert events(read().readBetweenOffsets(start, end)) == found
    assert reader.read(end)[1] == end
    assert caplog.messages[0].startswith(f"requests: row group 0 of {name} cannot be decoded: ")


def test_a_store_that_fails_is_not_taken_for_a_bad_file(log, read, monkeypatch):
    """The query ends and begins again, and the requests are read then."""
    log.append([heartbeat("a")])

    def fail(*_arguments, **_options):
        raise OSError("the store does not answer")

    reader = read()
    with monkeypatch.context() as failing:
        failing.setattr("group_coordinator.pipeline.delta.tail.pq.ParquetFile", fail)
        with pytest.raises(OSError, match="does not answer"):
            reader.read(reader.initialOffset())
    assert ids(reader.read(reader.initialOffset())[0]) == ["a"]


def test_a_batch_ends_within_a_row_group_that_is_too_large_for_it(root, log, read, monkeypatch):
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 20_000)
    monkeypatch.setattr(event_tables, "_SMALL_BYTES", 0)
    rows = to_requests([heartbeat(f"{number:03}") for number in range(500)])
    Appender(Path(table_uri(root, REQUESTS))).append(rows)
    log.append([heartbeat("after")])
    reader = read(max_bytes=30_000)
    found = [batch for batch in all_ids(reader, reader.initialOffset()) if batch]
    assert len(found) == 3, "it is one row group and 65,000 bytes of events"
    each_once = [request_id for batch in found for request_id in batch]
    assert each_once == [*(f"{number:03}" for number in range(500)), "after"]


def test_a_batch_is_run_again_as_it_was_however_pages_are_cut_now(root, log, read, monkeypatch):
    rows = to_requests([heartbeat(f"{number:03}") for number in range(500)])
    Appender(Path(table_uri(root, REQUESTS))).append(rows)
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 20_000)
    reader = read(max_bytes=50_000)
    _, start = reader.read(reader.initialOffset())
    batch, end = reader.read(start)
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 33_000)
    assert ids(read().readBetweenOffsets(start, end)) == ids(batch)


def test_an_offset_is_read_from_sparks_progress():
    text = '{"bootstrap": [4, 0], "requests": [7, 2], "run": 1, "selection": {"of": 3}}'
    for given in (text, json.loads(text)):
        found = offset_of(given)
        assert found is not None
        assert (found.bootstrap, found.requests) == (Position(4), Position(7, 2))
    for other in (None, "null", '{"reservoirVersion": 9}', "3"):
        assert offset_of(other) is None


def test_spark_finds_what_it_has_read_by_the_offset_that_it_was_told(log, read) -> None:
    """Spark keeps what `read` returned, by offsets that it compares after a way through JSON."""
    log.append([heartbeat("a", "1")])
    spark = _SimpleStreamReaderWrapper(read(selection=Selection(tuple(range(50)), 50)))
    start = json.loads(json.dumps(spark.initialOffset()))
    end = json.loads(json.dumps(spark.latestOffset(start, ReadAllAvailable())))
    spark.partitions(start, end)
    assert len(ids(spark.getCache(start, end))) == 1


def test_a_node_does_not_open_the_requests_of_other_nodes_groups(
    root: str, log: RequestLog, read: Any
) -> None:
    mine = [name for name in map("g{}".format, range(40)) if partition_for(name, 5) == 1]
    others = [name for name in map("g{}".format, range(40)) if partition_for(name, 5) != 1]
    log.append([heartbeat("1", mine[0]), heartbeat("2", others[0])])
    log.append([heartbeat("3", others[1]), heartbeat("4", others[2]), heartbeat("5", None)])
    log.append([heartbeat("6", mine[1])])
    # A member's commits are of one group: the file of another one's is not opened. Here it is gone.
    (gone,) = [
        each for each in Path(table_uri(root, REQUESTS)).glob("*.parquet") if rows_of(each) == 3
    ]
    gone.unlink()
    reader = read(selection=Selection((1,), 5))
    batches, end = reader.read(reader.initialOffset())
    found = ids(batches)
    assert found == ["1", "6"]
    assert ids(reader.readBetweenOffsets(reader.initialOffset(), end)) == found
    everything = read(selection=Selection((1, partition_for(others[1], 5)), 5))
    with pytest.raises(EventsGoneError):
        everything.read(everything.initialOffset())


@pytest.mark.parametrize("opened", [False, True])
def test_requests_of_other_nodes_groups_begin_no_batch(
    root: str, log: RequestLog, read: Any, opened: bool
) -> None:
    """A batch costs about as much for no request as for many, and timers need two a second."""
    (theirs, *_), (ours, *_) = of_two()

    def others(request_id: str) -> None:
        request = [heartbeat(request_id, theirs)]
        if opened:
            # It has no tag: it is opened, to see whose its requests are.
            write_deltalake(table_uri(root, REQUESTS), to_requests(request), mode="append")
        else:
            log.append(request)

    appends = {at: partial(others, f"{at}") for at in range(50, 900, 50)}
    appends[310] = partial(log.append, [heartbeat("mine", ours)])
    reader = read(selection=Selection((1,), 2), wait_ms=500, bootstrap_end=1)
    with clock.use(time_of_day := Clock(appends)):
        batch, end = reader.read(start := reader.initialOffset())
        assert ids(batch) == ["mine"]
        assert 310 <= time_of_day.now_ms < 320, "at once"
        assert ids(reader.readBetweenOffsets(start, end)) == ["mine"]
        began_ms = time_of_day.now_ms
        batch, after = reader.read(end)
        assert ids(batch) == []
        assert time_of_day.now_ms - began_ms >= 500, "timers run all the same"
        assert offset_of(after).requests.version > offset_of(end).requests.version + 5


def test_what_is_passed_over_is_so_in_the_batch_that_is_run_again(log: RequestLog, read: Any):
    """A reader that goes on without a batch must not forget what the batch may not have."""
    _, (mine, *_) = of_two()
    for version in (1, 2, 3):
        log.append([heartbeat(f"{version}", mine)])
    reader = read(selection=Selection((0, 1), 2, {1: 2}), wait_ms=50, max_files=1, bootstrap_end=1)
    at, found = reader.initialOffset(), []
    while found != ["3"]:
        batch, end = reader.read(at)
        found = ids(batch)
        assert ids(reader.readBetweenOffsets(at, end)) == found
        at = end


def by_group(batches: Any) -> dict[str | None, list[str]]:
    """The ids of each group's requests in the order in which they are decided."""
    found: dict[str | None, list[str]] = {}
    for group, text in sorted(events(batches), key=lambda event: event[1]):
        found.setdefault(group, []).append(json.loads(text[KEY_WIDTH:])["request_id"])
    return found


@pytest.mark.parametrize("of", [50, 7])
def test_nodes_read_each_its_lanes_and_together_every_request_once_by_group(
    root: str, log: RequestLog, read: Any, monkeypatch: pytest.MonkeyPatch, of: int
) -> None:
    """A large commit in lanes, one of few rows, and those of writers that know of no lanes."""
    monkeypatch.setattr(request_log, "LANE_ROWS", 10)
    groups = [f"group-{number}" for number in range(60)]
    uri = table_uri(root, REQUESTS)
    asked = [heartbeat(f"{n:03}", groups[n * n % 60]) for n in range(400)]
    log.append(asked[:300])
    log.append(asked[300:305])
    Appender(Path(uri)).append(to_requests(asked[305:350]))  # without lanes
    write_deltalake(uri, to_requests(asked[350:390]), mode="append")
    DeltaTable(uri).optimize.compact()  # a rewrite brings nothing new
    log.append(asked[390:])
    everything = by_group(read().read(read().initialOffset())[0])
    together: dict[str | None, list[str]] = {}
    for node in range(4):
        mine = read(selection=Selection(tuple(range(node, of, 4)), of))
        start = mine.initialOffset()
        batches, end = mine.read(start)
        found = by_group(batches)
        assert by_group(mine.readBetweenOffsets(start, end)) == found
        assert not found.keys() & together.keys()
        together |= found
    assert together == everything
    wanted: dict[str | None, list[str]] = {}
    for each in asked:
        wanted.setdefault(each.group_id, []).append(each.request_id)
    assert together == wanted


def test_a_large_commit_is_read_on_where_a_batch_was_full(
    log: RequestLog, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "LANE_ROWS", 10)
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 2_000)
    log.append([heartbeat(f"{n:03}", f"group-{n % 60}") for n in range(300)])
    mine = Selection(tuple(range(0, 50, 3)), 50)
    reader = read(max_bytes=3_000, selection=mine)
    batches = all_ids(reader, reader.initialOffset())
    whole = read(selection=mine)
    assert len(batches) > 3
    ids_read = [request_id for batch in batches for request_id in batch]
    assert sorted(ids_read) == sorted(ids(whole.read(whole.initialOffset())[0]))


def test_a_damaged_lane_is_refused_and_the_others_are_answered(
    root: str, log: RequestLog, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "LANE_ROWS", 10)
    log.append([heartbeat(f"{n:03}", f"group-{n % 60}") for n in range(100)])
    damage(root, "sent_at")
    path = next(Path(table_uri(root, REQUESTS)).glob("*.parquet"))
    lost = rows_of_group(path, 0)
    reader = read()
    batch, end = reader.read(reader.initialOffset())
    found = [decoded(each) for each in events(batch)]
    assert len(found) == 100
    assert sum(isinstance(each, Malformed) for each in found) == lost < 100
    assert reader.read(end)[1] == end


def test_a_tag_that_tells_wrongly_conceals_its_writer_s_own_requests_alone(
    root: str, log: RequestLog, read: Any
) -> None:
    """The partition's owner drops what is not its own, whatever the tag says of it."""
    a, b = (
        "g0",
        next(f"g{n}" for n in range(1, 9) if partition_for(f"g{n}", 50) != partition_for("g0", 50)),
    )
    wrong = in_lanes(to_requests([heartbeat("x", b)])).tags

    def lies(rows: pa.Table) -> Layout:
        return Layout(rows, wrong)

    Appender(Path(table_uri(root, REQUESTS)), lay_out=lies).append(
        to_requests([heartbeat("concealed", a)])
    )
    log.append([heartbeat("a", a), heartbeat("b", b)])
    for group, request_id in ((a, "a"), (b, "b")):
        reader = read(selection=Selection((partition_for(group, 50),), 50))
        assert ids(reader.read(reader.initialOffset())[0]) == [request_id]
    assert TAG in wrong


def rows_of_group(path: Path, group: int) -> int:
    return int(pq.read_metadata(path).row_group(group).num_rows)


def rows_of(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)
