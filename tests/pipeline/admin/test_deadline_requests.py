"""An operator's request is carried out in time or not at all, whatever the clocks say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.admin.changes import OffsetChange, delete_groups, execute_changes
from group_coordinator.pipeline.client import NoAnswer, NoTables, RequestClient
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import OFFSETS_TOPIC, REQUESTS, RESPONSES, from_arrow
from tests.pipeline.small import SmallCoordinator
from tests.roots import make_tables
from tests.waiting import wait_until

TO_SEVEN = [OffsetChange("t", 0, None, 7)]


class SkewedClock:
    """The machine's clocks, with another wall clock in the coordinator's thread."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        now = time.time_ns() // 1_000_000
        is_coordinator = threading.current_thread().name == "small-coordinator"
        return now + self.ahead_ms if is_coordinator else now

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def root(tmp_path: Path) -> str:
    make_tables(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


def asked(root: str) -> list[RequestEvent]:
    return from_arrow(RequestEvent, open_table(root, REQUESTS).to_pyarrow_table())


def answered(root: str) -> list[tuple[str, str]]:
    rows = open_table(root, RESPONSES).to_pyarrow_table(columns=["api", "error"])
    return sorted((row["api"], row["error"]) for row in rows.to_pylist())


def wait_for_answers(root: str, count: int) -> list[tuple[str, str]]:
    wait_until(
        lambda: f"{len(answered(root))} answers of {count}", lambda: len(answered(root)) >= count
    )
    return answered(root)


def test_what_no_coordinator_was_there_for_is_not_carried_out_when_one_starts(
    root: str, coordinator: SmallCoordinator
) -> None:
    coordinator.pause()
    with pytest.raises(NoAnswer, match=r"is a coordinator running .* Nothing of group 'g' was"):
        execute_changes(root, "g", TO_SEVEN, timeout_s=0.2)
    coordinator.resume()
    assert wait_for_answers(root, 1) == [("find_coordinator", "NONE")]
    assert [each.api for each in asked(root)] == ["find_coordinator"]


@pytest.mark.parametrize("ahead_ms", [-60_000, 0, 60_000])
def test_clocks_that_differ_by_a_minute_are_no_matter(root: str, ahead_ms: int) -> None:
    with clock.use(SkewedClock(ahead_ms)):
        coordinator = SmallCoordinator(root)
        execute_changes(root, "g", TO_SEVEN, timeout_s=10)
        coordinator.stop()
    assert answered(root) == [("find_coordinator", "NONE"), ("offset_commit", "NONE")]
    (change,) = (each for each in asked(root) if each.deadline is not None)
    assert change.api == "offset_commit"
    assert change.deadline is not None
    assert change.sent_at is not None
    assert abs(change.deadline - change.sent_at - ahead_ms) < 11_000


def test_what_is_decided_too_late_is_said_so_and_changes_nothing(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's hour passes once between each question and its change."""
    skewed = SkewedClock()
    flush = RequestClient.flush
    flushed: list[int] = []

    def let_an_hour_pass(client: RequestClient, timeout_s: float | None = None) -> bool:
        flushed.append(1)
        if len(flushed) % 2 == 0:
            skewed.ahead_ms += 3_600_000
        return flush(client, timeout_s)

    monkeypatch.setattr(RequestClient, "flush", let_an_hour_pass)
    with clock.use(skewed):
        coordinator = SmallCoordinator(root)
        try:
            with pytest.raises(Failure, match=r"REQUEST_TIMED_OUT .* nothing was changed"):
                execute_changes(root, "g", TO_SEVEN, timeout_s=60)
            (refused,) = delete_groups(root, ["g"], timeout_s=60)
            assert "REQUEST_TIMED_OUT" in str(refused.error)
        finally:
            coordinator.stop()
    assert len(flushed) == 4
    assert {error for api, error in answered(root) if api != "find_coordinator"} == {
        "REQUEST_TIMED_OUT"
    }
    assert open_table(root, OFFSETS_TOPIC).to_pyarrow_table().num_rows == 0


def test_a_coordinator_that_stops_between_question_and_change(
    root: str, coordinator: SmallCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = RequestClient.flush
    flushed: list[int] = []

    def flush_and_stop(client: RequestClient, timeout_s: float | None = None) -> bool:
        flushed.append(1)
        if len(flushed) == 2:
            coordinator.pause()
        return flush(client, timeout_s)

    monkeypatch.setattr(RequestClient, "flush", flush_and_stop)
    monkeypatch.setattr("group_coordinator.pipeline.admin.deadline_requests._ANSWER_S", 0.1)
    with pytest.raises(NoAnswer, match="nothing will be changed, unless the change had begun"):
        execute_changes(root, "g", TO_SEVEN, timeout_s=0.3)
    coordinator.resume()
    assert ("offset_commit", "REQUEST_TIMED_OUT") in wait_for_answers(root, 2)
    assert open_table(root, OFFSETS_TOPIC).to_pyarrow_table().num_rows == 0


def test_a_root_that_does_not_exist_is_named_and_not_made(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(NoTables, match=rf"there is no root {nowhere}: start a coord") as raised:
        RequestClient(str(nowhere))
    assert raised.value.__cause__ is None
    assert not nowhere.exists()
