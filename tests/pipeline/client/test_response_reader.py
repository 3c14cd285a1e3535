"""Each answer reaches who waits for it in this process, and nobody waits for what cannot come."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from group_coordinator.pipeline.client import (
    DeliveryFailed,
    NoAnswer,
    NoTables,
    ProducerClosed,
    ProducerSettings,
    RequestClient,
    ResponseReader,
    ResponsesLost,
    response_reader,
)
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import add_action, encode_commit
from group_coordinator.pipeline.delta.data_file import DataFile
from group_coordinator.schemas.messages import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.tables import RESPONSES, from_arrow, to_arrow
from tests.pipeline.rows import heartbeat, response, rows
from tests.pipeline.small import SmallCoordinator
from tests.roots import make_tables
from tests.support.failing_reads import (
    KINDS,
    STORE_KINDS,
    count_reads,
    failing_reads,
    name_of,
)
from tests.waiting import wait_until

SOON_S = 20.0
NEVER_MS = 600_000


@pytest.fixture
def reader(root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResponseReader]:
    """A reader that looks often whether its table is still there, and gives up soon."""
    monkeypatch.setattr(response_reader, "_CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(response_reader, "_RETRY_BUDGET_S", 0.1)
    with ResponseReader(root) as reader:
        yield reader


def answer(root: str, *answers: Response) -> None:
    Appender(f"{root}/responses").append(to_arrow(RESPONSES, list(answers)))


# --- rows ---------------------------------------------------------------------------------------


def test_responses_are_decoded_as_they_were_encoded() -> None:
    member = JoinGroupResponseMember("m", None, b"\x00\xff")
    join = JoinGroupResponse(3, "consumer", "range", "m", False, "m", (member,))
    fetched = OffsetFetchPartition(0, 2**40, None, "why")
    offsets = OffsetFetchResponse((OffsetFetchTopicResult("t", (fetched,)),))
    answers = [
        Response("1", "g", "join_group", 0, "NONE", responded_at=1_700_000_123, join_group=join),
        Response("2", "g", "offset_fetch", 0, "NONE", offset_fetch=offsets),
        Response("3", "g", "leave_group", 0, "NONE", leave_group=LeaveGroupResponse(None)),
        Response("4", "g", "heartbeat", 27, "REBALANCE_IN_PROGRESS", "why", responded_at=-1),
    ]
    assert from_arrow(Response, to_arrow(RESPONSES, answers)) == answers


# --- waiting ------------------------------------------------------------------------------------


def test_each_request_gets_its_own_answer(root: str, reader: ResponseReader) -> None:
    waiting = {name: reader.register(name) for name in ("a", "b", "c")}
    answer(root, response("b"), response("another process's"))
    answer(root, response("a"))
    for name in ("a", "b"):
        assert waiting[name].result(SOON_S) == response(name)
    assert not waiting["c"].done()


@pytest.mark.parametrize(
    "other",
    [{"group_id": "theirs"}, {"api": "offset_commit"}],
    ids=["another group's", "another API's"],
)
def test_answer_to_another_request_with_the_same_id_is_ignored(
    root: str, reader: ResponseReader, other: dict[str, Any]
) -> None:
    """Whoever reads `requests` can write a row with an id that still waits for its answer."""
    mine = response("a")
    asked = RequestEvent("a", mine.group_id, mine.api)
    future = reader.register("a", asked)
    marker = reader.register("marker")
    answer(root, replace(mine, error_code=25, **other), response("marker"))
    assert marker.result(SOON_S).request_id == "marker"
    assert not future.done()
    answer(root, replace(mine, error_code=25, **other), mine)
    assert future.result(SOON_S) == mine


def test_only_awaited_answers_are_decoded(
    root: str, reader: ResponseReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def counting(struct: Any, rows: Any) -> Any:
        decoded.append(rows.num_rows)
        return from_arrow(struct, rows)

    monkeypatch.setattr(response_reader, "from_arrow", counting)
    future = reader.register("mine")
    answer(root, *[response(f"theirs {number}") for number in range(1000)], response("mine"))
    assert future.result(SOON_S).request_id == "mine"
    assert sum(decoded) == 1


def test_request_is_written_after_earlier_answers_not_after_its_linger(
    root: str,
) -> None:
    settings = ProducerSettings(linger_ms=NEVER_MS, delivery_timeout_ms=2 * NEVER_MS)
    with RequestClient(root, settings) as client:
        first = client.send(heartbeat("a"))
        wait_until("the first request is written", lambda: rows(root, "requests"))
        second, third = client.send(heartbeat("b")), client.send(heartbeat("c"))
        answer(root, response("a"))
        assert first.result(SOON_S) == response("a")
        wait_until("all are written", lambda: len(rows(root, "requests")) >= 3)
        assert {row["request_id"] for row in rows(root, "requests")} == {"a", "b", "c"}
        answer(root, response("b"), response("c"))
        assert second.result(SOON_S) == response("b")
        assert third.result(SOON_S) == response("c")


def test_duplicate_answer_is_delivered_once(root: str, reader: ResponseReader) -> None:
    first = reader.register("a")
    answer(root, response("a"), response("a"))
    assert first.result(SOON_S) == response("a")
    second, other = reader.register("a"), reader.register("b")
    answer(root, response("b"))
    assert other.result(SOON_S) == response("b")
    assert not second.done()


def test_cancelled_request_is_forgotten(root: str, reader: ResponseReader) -> None:
    reader.register("a").cancel()
    again = reader.register("a")
    with pytest.raises(ValueError, match="request 'a' is already registered"):
        reader.register("a")
    answer(root, response("a"))
    assert again.result(SOON_S) == response("a")


def test_idle_reader_misses_no_answer(root: str) -> None:
    with ResponseReader(root, idle_ms=600_000) as reader:
        answer(root, response("old"))
        future = reader.register("a")
        answer(root, response("a"))
        assert future.result(SOON_S) == response("a")


class Suspended:
    """A tail whose reader is suspended until the test resumes it."""

    def __init__(self, tail: Any) -> None:
        self.tail, self.asleep, self.resumed = tail, Event(), Event()

    def look(self) -> Any:
        self.asleep.set()
        assert self.resumed.wait(SOON_S)
        return self.tail.look()


def test_client_suspended_past_the_log_retention_gets_its_answers(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("group_coordinator.pipeline.delta.identity.GONE_CHECK_S", 0)
    with ResponseReader(root) as reader:
        suspended = reader._tail = Suspended(reader._tail)  # type: ignore[assignment]
        before, unanswered = reader.register("before"), reader.register("unanswered")
        assert suspended.asleep.wait(SOON_S)
        answer(root, response("before"))
        answer(root, response("another process's"))
        clean_log_up(Path(root) / "responses")
        suspended.resumed.set()
        assert before.result(SOON_S) == response("before")
        after = reader.register("after")
        answer(root, response("after"))
        assert after.result(SOON_S) == response("after")
        assert not unanswered.done()


def clean_log_up(table: Path) -> None:
    """Leave of the log a checkpoint of its newest version."""
    DeltaTable(str(table)).create_checkpoint()
    for commit in (table / "_delta_log").glob("*.json"):
        commit.unlink()


def test_asyncio_can_await_and_cancel(root: str, reader: ResponseReader) -> None:
    async def wait() -> Response:
        given_up = asyncio.wrap_future(reader.register("b"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(given_up, 0.01)
        future = asyncio.wrap_future(reader.register("a"))
        answer(root, response("b"), response("a"))
        return await asyncio.wait_for(future, SOON_S)

    assert asyncio.run(wait()) == response("a")


# Reads that fail, of the first look of who waits: there are fewer.
MOST_READS = 20


@pytest.mark.full
@pytest.mark.parametrize("is_trimmed", [False, True], ids=["whole log", "trimmed log"])
@pytest.mark.parametrize("kind", [*KINDS, *STORE_KINDS], ids=name_of)
def test_no_answer_is_skipped_whichever_read_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, is_trimmed: bool
) -> None:
    count_reads(monkeypatch, kind)
    base = str(tmp_path / "base")
    make_tables(base)
    for fails in range(1, MOST_READS):
        root = str(tmp_path / f"root-{fails}")
        shutil.copytree(base, root)
        # It looks when somebody waits, and not before.
        with ResponseReader(root, idle_ms=NEVER_MS) as reader:
            for name in "axb":
                answer(root, response(name))
            if is_trimmed:
                clean_log_up(Path(root) / "responses")
            with failing_reads(root, fails, kind):
                if kind in STORE_KINDS:
                    # What a store refuses for as long as it is asked is told to who waits.
                    with suppress(ResponsesLost):
                        assert reader.register("a").result(SOON_S) == response("a")
                else:
                    assert reader.register("a").result(SOON_S) == response("a")
            later = reader.register("later")
            answer(root, response("later"))
            assert later.result(SOON_S) == response("later")


def test_answer_that_could_not_be_delivered_is_read_again(
    root: str, reader: ResponseReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.setattr(response_reader, "from_arrow", from_arrow)
        raise MemoryError

    monkeypatch.setattr(response_reader, "from_arrow", fail)
    future = reader.register("a")
    answer(root, response("a"))
    assert future.result(SOON_S) == response("a")


# --- failures -----------------------------------------------------------------------------------


def test_deleted_table_fails_the_pending_requests(root: str, reader: ResponseReader) -> None:
    future = reader.register("a")
    shutil.rmtree(Path(root) / "responses")
    with pytest.raises(ResponsesLost, match="responses cannot be read: there is no table at"):
        future.result(SOON_S)
    with pytest.raises(ResponsesLost, match="responses cannot be read"):
        reader.register("b")


def test_recreated_table_is_followed_again(root: str, reader: ResponseReader) -> None:
    lost = reader.register("a")
    away = Path(root) / "away"
    os.rename(Path(root) / "responses", away)
    with pytest.raises(ResponsesLost):
        lost.result(SOON_S)
    os.rename(away, Path(root) / "responses")
    found = reader.register("b")
    answer(root, response("b"))
    assert found.result(SOON_S) == response("b")


def test_unreadable_file_fails_the_pending_requests(root: str, reader: ResponseReader) -> None:
    future = reader.register("a")
    commit = Path(root) / "responses/_delta_log" / f"{1:020}.json"
    partial = commit.with_suffix(".tmp")
    file = DataFile("no-such-file.parquet", 1, 5, 1)
    partial.write_bytes(encode_commit([add_action(file)]))
    partial.rename(commit)
    with pytest.raises(ResponsesLost, match=r"no-such-file\.parquet"):
        future.result(SOON_S)


def test_reader_without_a_table_raises_no_tables(tmp_path: Path) -> None:
    with pytest.raises(NoTables, match="no coordinator has run on"):
        ResponseReader(str(tmp_path))


def test_close_fails_the_pending_requests(root: str) -> None:
    reader = ResponseReader(root)
    future = reader.register("a")
    reader.close()
    with pytest.raises(ResponsesLost, match="was closed"):
        future.result(0)
    with pytest.raises(ResponsesLost, match="is closed"):
        reader.register("b")


# --- a client -----------------------------------------------------------------------------------


@pytest.fixture
def client(root: str) -> Iterator[RequestClient]:
    with RequestClient(root, ProducerSettings(linger_ms=1)) as client:
        yield client


def fetch(name: str) -> RequestEvent:
    return RequestEvent(name, f"g{name}", "offset_fetch", offset_fetch=OffsetFetchRequest())


def test_many_threads_share_one_client(root: str, client: RequestClient) -> None:
    coordinator = SmallCoordinator(root)
    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(client.ask, [fetch(str(number)) for number in range(40)]))
    finally:
        coordinator.stop()
    assert [each.request_id for each in answers] == [str(number) for number in range(40)]
    assert answers[0].offset_fetch == OffsetFetchResponse(())


def test_request_without_a_coordinator_times_out(client: RequestClient) -> None:
    with pytest.raises(NoAnswer, match=r"no answer within 0\.02 s: is a coordinator running on"):
        client.ask(heartbeat("a"), timeout_ms=20)


def test_request_that_is_not_written_fails_at_once(root: str, client: RequestClient) -> None:
    shutil.rmtree(Path(root) / "requests")
    with pytest.raises(DeliveryFailed, match="1 request could not be written"):
        client.ask(heartbeat("a"), timeout_ms=3_600_000)


def test_request_that_is_not_accepted_is_not_pending(root: str) -> None:
    client = RequestClient(root)
    client.close()
    with pytest.raises((ProducerClosed, ResponsesLost), match="closed"):
        client.send(heartbeat("a"))


def test_answer_to_a_forgotten_request_is_ignored(root: str, client: RequestClient) -> None:
    future = client.send(heartbeat("a"))
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    again = client.send(heartbeat("a"))
    answer(root, response("a"))
    assert again.result(SOON_S) == response("a")


def test_client_without_tables_raises_no_tables(tmp_path: Path) -> None:
    with pytest.raises(NoTables, match="no coordinator has run on"):
        RequestClient(str(tmp_path))
    make_tables(str(tmp_path))
    RequestClient(str(tmp_path)).close()
