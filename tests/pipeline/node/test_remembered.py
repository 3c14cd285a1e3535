"""What groups remember of the requests that were answered before their partition was taken over."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.coordinator.group.dedup import digest_bytes
from group_coordinator.coordinator.group.log_time import MOST_BEHIND_MS
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.node.answered_requests import Answers, RecentAnswers
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, unpack
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.tables import RESPONSES
from tests.clocks import AheadClocks
from tests.coordinator.test_claims import commit

WINDOW_MS = 60_000
OURS = CoordinatorSettings(request_dedup_window_ms=WINDOW_MS)


@pytest.fixture
def now() -> int:
    return clock_ms()


def answer(request_id: str, at: int, group_id: str = "g", api: str = "offset_commit") -> Response:
    return Response(request_id, group_id, api, 0, "NONE", responded_at=at)


def write(root: str, *answers: Response, batch: int = 0) -> None:
    Sink(root, CoordinatorSettings()).write([GroupOutput(list(answers), [], [], [])], "q", batch)


def lately(root: str, ours: CoordinatorSettings, now: int) -> dict[str, bytearray]:
    with open_engine() as engine:
        answers = Answers(engine, ours.request_dedup_window_ms)
        answers.read_on(open_table(root, RESPONSES), now)
        return RecentAnswers(engine, ours).digests(now)


def digests(*ids: str) -> bytes:
    return b"".join(map(digest_bytes, ids))


def test_what_was_answered_in_the_window_is_found(root, now):
    write(
        root,
        answer("late", now - 1),
        answer("early", now - WINDOW_MS + 1_000),
        answer("before", now - WINDOW_MS - 1),
        answer("other group", now - 1, "h"),
        answer("read", now - 1, api="offset_fetch"),
        answer("beat", now - 1, api="heartbeat"),
    )
    found = lately(root, OURS, now)
    assert found == {"g": digests("early", "late"), "h": digests("other group")}


def test_elsewhere_than_on_a_local_disk_the_same_is_found(root, now, monkeypatch):
    write(root, answer("r", now - 1), answer("beat", now - 1, api="heartbeat"))
    monkeypatch.setattr(
        "group_coordinator.pipeline.node.answered_requests.local_folder", lambda _: None
    )
    assert lately(root, OURS, now) == {"g": digests("r")}


def test_an_old_root_brings_nothing(root, now):
    write(root, answer("r", now))
    late = now + 2 * WINDOW_MS + MOST_BEHIND_MS
    assert lately(root, OURS, late) == {"g": digests("r")}
    assert lately(root, OURS, late + 1) == {}


def test_a_clock_that_is_behind_or_ahead_hides_nothing(root, now):
    write(root, answer("r", now), answer("before", now - WINDOW_MS + 1))
    for mine in (now - 10 * WINDOW_MS, now + WINDOW_MS):
        assert digests("r") in bytes(lately(root, OURS, mine)["g"])


@pytest.mark.parametrize(
    ("older_ms", "found"), [(1_000, digests("new")), (-30_000, digests("new", "old"))]
)
def test_answers_of_files_from_before_the_window_do_not_count(root, now, older_ms, found):
    """A file is dated by the clock of who wrote it, which may be behind."""
    write(root, answer("old", now))
    long_ago = {"modificationTime": now - 2 * WINDOW_MS - MOST_BEHIND_MS - older_ms}
    (commit_file,) = Path(root, "responses", "_delta_log").glob("*01.json")
    lines = [msgspec.json.decode(line) for line in commit_file.read_bytes().splitlines()]
    for line in lines:
        line.get("add", {}).update(long_ago)
    commit_file.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    write(root, answer("new", now), batch=1)
    assert lately(root, OURS, now) == {"g": found}


def test_a_group_is_brought_its_newest_up_to_the_bound(root, now):
    write(root, *(answer(f"r{n}", now - 10 + n) for n in range(5)))
    bounded = replace(OURS, request_dedup_max_ids=2)
    assert lately(root, bounded, now) == {"g": digests("r3", "r4")}


def test_a_repeated_commit_is_not_decided_again_after_a_take_over(root, now, tmp_path):
    """The repetition would set the offset back."""
    machine = BatchMachine()
    texts = [commit("first", 1, "g"), commit("second", 2, "g")]
    output = machine.process("g", None, texts, now).output
    assert output is not None
    Sink(root, CoordinatorSettings()).write([output], "q", 0)
    bootstrap = prepare_bootstrap(root, str(tmp_path / "bootstrap"), ours=OURS)
    rows = DeltaTable(bootstrap.uri).to_pyarrow_table().to_pylist()
    events = unpack([row["event"] for row in rows])
    assert [event.startswith(PREFIX) for event in events] == [True, True]
    loaded = BatchMachine().process("g", None, [*events, texts[0]], now + 5_000)
    assert loaded.output is not None
    assert loaded.output.responses == [], "and it was answered before"
    fetch = '{"request_id":"f","group_id":"g","api":"offset_fetch","offset_fetch":{}}'
    state = loaded.state
    result = BatchMachine().process("g", state, [texts[0], fetch], now + 6_000)
    assert result.output is not None
    (fetched,) = result.output.responses
    assert '"committed_offset":2' in msgspec.json.encode(fetched).decode()
    later = BatchMachine().process("g", state, [texts[0]], now + 5_000 + WINDOW_MS)
    assert later.output is not None and len(later.output.responses) == 1, "the window is over"


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [
        (1_000, ""),
        (150_000, "this machine's clock is 150.0 s behind the log"),
        (MOST_BEHIND_MS, "this machine's clock is 300.0 s behind the log"),
        (MOST_BEHIND_MS + 1, "an answer is 300 s ahead of this machine's clock"),
    ],
)
def test_a_clock_that_is_behind_is_told_of_and_by_how_much(root, now, caplog, ahead_ms, said):
    """Any answer tells the time, a heartbeat's too; that of another's partition does not."""
    mine, theirs = (
        next(f"g{n}" for n in range(9) if partition_for(f"g{n}", 2) == p) for p in (0, 1)
    )
    write(root, answer("r", now + ahead_ms, mine, "heartbeat"), answer("s", now - 7, mine))
    write(root, answer("t", now + ahead_ms + 9, theirs), batch=1)
    with open_engine() as engine:
        Answers(engine, WINDOW_MS).read_on(open_table(root, RESPONSES), now)
        newest = RecentAnswers(engine, OURS).newest_ms(PartitionSet({0}, 2), now)
    # One that is too far ahead hides no other one's, but that of its own group.
    assert newest == (now + ahead_ms if ahead_ms <= MOST_BEHIND_MS else None)
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [each.startswith(said) for each in told] == ([True] if said else [])


def events_of(uri: str) -> list[str]:
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return unpack([row["event"] for row in rows if row["group_id"] == "g"])


@pytest.mark.parametrize(
    "clocks_s",
    [
        pytest.param([-150, 0], id="whose was behind"),
        pytest.param([150, 0], id="whose was ahead"),
        pytest.param([0, -150, 0], id="a clock that is behind in between"),
        pytest.param([0, 150, 0], id="one that is ahead in between"),
        pytest.param([0, -290, 0, 290], id="as far as clocks may differ"),
    ],
)
def test_no_clock_has_a_request_decided_twice_that_is_repeated_after_take_overs(
    root, now, tmp_path, clocks_s
):
    """Each coordinator decides one commit and is gone after 15 s; the next is sent all again."""
    write(root, answer("another's", now, "h"))
    clocks, said = AheadClocks(), []
    with clock.use(clocks):
        for number, ahead_s in enumerate(clocks_s):
            clocks.wall_ahead_s = ahead_s + 15 * number
            bootstrap = prepare_bootstrap(root, str(tmp_path / str(number)), ours=OURS)
            texts = [*said, commit(f"r{number}", number, "g")]
            events = [*events_of(bootstrap.uri), *texts]
            result = BatchMachine().process("g", None, events, clock_ms())
            assert result.output is not None
            answered = [each.request_id for each in result.output.responses]
            assert answered == [f"r{number}"]
            Sink(root, CoordinatorSettings()).write([result.output], f"q{number}", 0)
            said = texts


@pytest.mark.parametrize(
    ("text", "answered_ago_ms"),
    [
        pytest.param(commit("r", 1, "g"), 8 * WINDOW_MS, id="with records"),
        pytest.param(
            '{"request_id":"r","group_id":"g","api":"leave_group","leave_group":{"members":[]}}',
            0,
            id="with answers alone",
        ),
    ],
)
def test_a_group_s_time_goes_on_from_when_any_group_was_answered_last(
    root, now, tmp_path, text, answered_ago_ms
):
    output = BatchMachine().process("g", None, [text], now - answered_ago_ms).output
    assert output is not None
    Sink(root, CoordinatorSettings()).write([output], "q", 0)
    write(root, answer("heard", now + 150_000, "h", "heartbeat"), batch=1)
    bootstrap = prepare_bootstrap(root, str(tmp_path / "bootstrap"), ours=OURS)
    (event,) = events_of(bootstrap.uri)
    result = BatchMachine().process("g", None, [event, commit("next", 2, "g")], now)
    assert result.output is not None
    assert [each.responded_at for each in result.output.responses] == [now + 150_000]


def test_only_the_groups_of_the_claimed_partitions_are_told(root, now, tmp_path):
    write(root, *(answer(f"r{n}", now, f"g{n}") for n in range(10)))
    bootstrap = prepare_bootstrap(
        root, str(tmp_path / "bootstrap"), PartitionSet({1}, 3), ours=OURS
    )
    rows = DeltaTable(bootstrap.uri).to_pyarrow_table().to_pylist()
    assert sorted(row["group_id"] for row in rows) == [
        f"g{n}" for n in range(10) if partition_for(f"g{n}", 3) == 1
    ]
    assert all('"control":"remember"' in row["event"][KEY_WIDTH:] for row in rows)
