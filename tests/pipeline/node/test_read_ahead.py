"""What is read for a claim before it is made, and what is left to be read after it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.table_files import VersionFiles
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node import read_ahead
from group_coordinator.pipeline.node.answered_requests import Answers
from group_coordinator.pipeline.node.read_ahead import ClaimReadAhead, ReadAhead
from group_coordinator.pipeline.node.table_scan import TableScan
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.tables import REQUESTS, RESPONSES
from tests.pipeline.node.test_node import Clock
from tests.pipeline.node.test_remembered import digests
from tests.pipeline.rows import heartbeat, output

OURS = CoordinatorSettings()


@pytest.fixture
def ahead(root: str) -> Iterator[ReadAhead]:
    with ReadAhead(root, OURS) as ahead:
        yield ahead


def ask(root: str, *ids: str) -> None:
    RequestLog(root).append([heartbeat(each) for each in ids])


def answer(root: str, *ids: str, batch: int = 0, api: str = "heartbeat") -> None:
    said = output()
    said.responses += [Response(i, "g", api, 0, "NONE", responded_at=clock_ms()) for i in ids]
    Sink(root, OURS).write([said], "q", batch)


def waiting(ahead: ReadAhead) -> list[str]:
    events = [row["event"] for page in ahead.waiting.packed(None) for row in page.to_pylist()]
    return sorted(json.loads(event[KEY_WIDTH:])["request_id"] for event in events)


def rewrite(root: str, name: str) -> None:
    """Make one file of all, as upkeep does."""
    DeltaTable(f"{root}/{name}").optimize.compact()


def test_what_was_answered_since_does_not_wait_and_what_was_asked_since_does(root, ahead):
    ask(root, "a", "b", "c")
    answer(root, "a")
    ahead.read_on()
    assert ahead.version == 1
    assert waiting(ahead) == ["b", "c"]
    ask(root, "d", "e")
    answer(root, "b", "d", batch=1)
    assert waiting(ahead) == ["b", "c"], "nothing is known of it before it is read"
    ahead.read_on()
    assert ahead.version == 2
    assert waiting(ahead) == ["c", "e"]
    # A producer writes again what was answered before it was read ahead.
    ask(root, "a")
    ahead.read_on()
    assert waiting(ahead) == ["c", "e"]


def test_only_new_files_are_read(root, ahead, monkeypatch):
    ask(root, "a")
    answer(root, "a")
    ahead.read_on()
    ask(root, "b")
    answer(root, "b", batch=1)
    read = []
    pages_of, rows = TableScan._pages_of, VersionFiles.rows
    monkeypatch.setattr(
        TableScan,
        "_pages_of",
        lambda scan, path, *more: read.append(path) or pages_of(scan, path, *more),
    )
    monkeypatch.setattr(
        VersionFiles,
        "rows",
        lambda table, files, by_name: (
            read.extend(f.path for f in files) or rows(table, files, by_name)
        ),
    )
    ahead.read_on()
    (asked,) = (set(read) & paths(root, "requests"),)
    assert len(asked) == 1
    assert len(read) == 2
    assert len(set(read) & paths(root, "responses")) == 1
    assert waiting(ahead) == []


def paths(root: str, name: str) -> set[str]:
    return {path.rpartition("/")[2] for path in DeltaTable(f"{root}/{name}").file_uris()}


@pytest.mark.parametrize("name", [REQUESTS.name, RESPONSES.name])
def test_after_a_rewrite_nothing_waits_twice_or_is_forgotten(root, ahead, name):
    for number in range(3):
        ask(root, f"done {number}", f"waits {number}")
        answer(root, f"done {number}", batch=number)
    ahead.read_on()
    ask(root, "late", "answered late")
    rewrite(root, name)
    answer(root, "answered late", "waits 1", batch=7)
    ahead.read_on()
    assert waiting(ahead) == ["late", "waits 0", "waits 2"]


def test_what_was_answered_since_is_remembered_too_and_once(root, ahead):
    answer(root, "early", api="offset_commit")
    ahead.read_on()
    answer(root, "late", api="offset_commit", batch=1)
    rewrite(root, RESPONSES.name)
    ahead.read_on()
    found = ahead.lately.digests(clock_ms())["g"]
    assert sorted(bytes(found[at : at + 8]) for at in (0, 8)) == sorted(map(digests, EARLY_LATE))
    assert len(found) == 16


EARLY_LATE = ("early", "late")


def test_an_answer_between_two_reads_of_one_look_is_seen(root, ahead, monkeypatch):
    """The requests are read first: whoever is answered after that is answered in what follows."""
    ask(root, "a")
    read_on = Answers.read_on

    def later(answers: Answers, _responses: DeltaTable, now_ms: int) -> None:
        ask(root, "b")
        answer(root, "a", "b")
        read_on(answers, open_table(root, RESPONSES), now_ms)

    monkeypatch.setattr(Answers, "read_on", later)
    ahead.read_on()
    assert ahead.version == 1
    assert waiting(ahead) == []


def test_what_cannot_be_read_ahead_is_read_after_the_claim(root, monkeypatch, caplog):
    """A read that ended in the middle is not gone on with: half of its requests would be missed."""
    ask(root, "a")
    mine = ClaimReadAhead(root, OURS)
    with monkeypatch.context() as broken:
        broken.setattr(Answers, "read_on", _fails)
        mine.read()
        mine.read()
    assert caplog.text.count("reading ahead for a claim failed: no answer") == 1
    mine.present().read_on()
    assert waiting(mine.present()) == ["a"]
    mine.close()


def test_what_was_read_ahead_is_kept_for_the_next_round_and_no_longer(root, monkeypatch):
    reads = []
    monkeypatch.setattr(ReadAhead, "read_on", lambda _: reads.append(clock.monotonic()))
    with clock.use(Clock()):
        mine = ClaimReadAhead(root, OURS)
        mine.read()
        first = mine.present()
        mine.read()
        assert len(reads) == 1, "it is not read on at each look"
        clock.sleep(read_ahead._AGAIN_S)
        mine.read()
        assert len(reads) == 2
        mine.rest()
        assert mine.present() is first
        clock.sleep(read_ahead._AGAIN_S + read_ahead._KEPT_S + 0.1)
        mine.rest()
        assert mine.present() is not first
        mine.close()


def test_who_is_about_to_claim_does_not_read_once_more_before(root, monkeypatch):
    """The groups of what is let go wait for the claim, and in a store a read takes a second."""
    reads = []
    monkeypatch.setattr(ReadAhead, "read_on", lambda _: reads.append(1))
    with clock.use(Clock()):
        mine = ClaimReadAhead(root, OURS)
        mine.read(is_let_go=True)
        assert len(reads) == 1, "nothing was read yet"
        for _ in range(5):
            clock.sleep(read_ahead._AGAIN_S)
            mine.read(is_let_go=True)
        assert len(reads) == 1
        clock.sleep(read_ahead._AGAIN_S)
        mine.read(is_let_go=True)
        assert len(reads) == 2, "what is long let go leaves more and more to be read"
        mine.close()


def test_of_a_move_that_takes_for_ever_ever_less_is_read(root, monkeypatch):
    """Its owner may stand still, with its lease renewed."""
    reads = []
    monkeypatch.setattr(ReadAhead, "read_on", lambda _: reads.append(1))
    with clock.use(Clock()):
        mine = ClaimReadAhead(root, OURS)
        for _ in range(3_600):
            clock.sleep(1)
            mine.read()
        mine.close()
    assert len(reads) < 70


def _fails(*_: object) -> None:
    raise Failure("no answer")
