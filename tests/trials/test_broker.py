"""Tests of the comparison with a broker: what it compares, and that it finds a difference."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from group_coordinator.schemas.errors import ErrorCode
from tests.trials.broker.choices import (
    OLDER,
    UNRECORDED,
)
from tests.trials.broker.exchange import Draft, decoded
from tests.trials.broker.report import BrokerReport
from tests.trials.broker.sides import Ours
from tests.trials.broker.trial import compare

pytestmark = pytest.mark.full

# Results that random conversations must reach.
_REACHED = {
    "JoinGroup NONE",
    "JoinGroup MEMBER_ID_REQUIRED",
    "JoinGroup UNKNOWN_MEMBER_ID",
    "JoinGroup INCONSISTENT_GROUP_PROTOCOL",
    "JoinGroup INVALID_SESSION_TIMEOUT",
    "JoinGroup FENCED_INSTANCE_ID",
    "JoinGroup INVALID_GROUP_ID",
    "JoinGroup REBALANCE_IN_PROGRESS",
    "JoinGroup UNKNOWN_SERVER_ERROR",
    "SyncGroup NONE",
    "SyncGroup ILLEGAL_GENERATION",
    "SyncGroup UNKNOWN_MEMBER_ID",
    "SyncGroup REBALANCE_IN_PROGRESS",
    "SyncGroup INCONSISTENT_GROUP_PROTOCOL",
    "SyncGroup FENCED_INSTANCE_ID",
    "Heartbeat NONE",
    "Heartbeat ILLEGAL_GENERATION",
    "Heartbeat UNKNOWN_MEMBER_ID",
    "Heartbeat REBALANCE_IN_PROGRESS",
    "Heartbeat FENCED_INSTANCE_ID",
    "LeaveGroup NONE",
    "LeaveGroup UNKNOWN_MEMBER_ID",
    "LeaveGroup FENCED_INSTANCE_ID",
    "OffsetCommit NONE",
    "OffsetCommit ILLEGAL_GENERATION",
    "OffsetCommit UNKNOWN_MEMBER_ID",
    "OffsetCommit OFFSET_METADATA_TOO_LARGE",
    "OffsetCommit UNKNOWN_TOPIC_OR_PARTITION",
    "OffsetCommit FENCED_INSTANCE_ID",
    "OffsetCommit REBALANCE_IN_PROGRESS",
    "OffsetFetch NONE",
    "DescribeGroups NONE",
    "DescribeGroups GROUP_ID_NOT_FOUND",
    "DeleteGroups NONE",
    "DeleteGroups NON_EMPTY_GROUP",
    "DeleteGroups GROUP_ID_NOT_FOUND",
    "OffsetDelete NONE",
    "OffsetDelete GROUP_ID_NOT_FOUND",
    "OffsetDelete GROUP_SUBSCRIBED_TO_TOPIC",
    "OffsetDelete NON_EMPTY_GROUP",
    "OffsetDelete UNKNOWN_TOPIC_OR_PARTITION",
}


class Twin:
    """Another coordinator in the broker's place; the nth response to `wrong` is wrong."""

    def __init__(self, wrong: str | None = None, nth: int = 1) -> None:
        self._ours = Ours("theirs")
        self._answers: dict[int, bytes] = {}
        self._wrong = wrong
        self._nth = nth

    def send(self, place: int, draft: Draft) -> None:
        for where, asked, body in self._ours.send(place, draft):
            self._answers[where] = self._changed(asked, body)

    def _changed(self, asked: Draft, body: bytes) -> bytes:
        # In a version without tagged fields the last byte is of the last field.
        if asked.api != self._wrong or asked.version > 3:
            return body
        self._nth -= 1
        return body if self._nth else body[:-1] + bytes([body[-1] ^ 1])

    def answer(self, place: int, _draft: Draft, _may_lack: bool = False) -> bytes | None:
        return self._answers.pop(place, None)

    def unasked(self) -> list[int]:
        return sorted(self._answers)

    def close(self) -> None:
        """Do nothing, because there are no connections."""


class Silent(Twin):
    """A side that never responds."""

    def answer(self, _place: int, _draft: Draft, _may_lack: bool = False) -> bytes | None:
        return None


Leaves = Callable[[Draft, Draft, int], bool]


class Leaving(Twin):
    """A side that omits the response to a parked request, if `leaves` is true.

    `leaves` gets the sent request, the parked request and its error code.
    """

    def __init__(self, leaves: Leaves) -> None:
        super().__init__()
        self._leaves = leaves

    def send(self, place: int, draft: Draft) -> None:
        for where, waited, body in self._ours.send(place, draft):
            code = decoded(waited, body).get("error_code", 0)
            if where == place or not self._leaves(draft, waited, code):
                self._answers[where] = body


def leaves_as_kafka(sent: Draft, waited: Draft, code: int) -> bool:
    is_older = waited.api == sent.api and code == ErrorCode.REBALANCE_IN_PROGRESS
    is_removed = waited.api == "SyncGroup" and code == ErrorCode.UNKNOWN_MEMBER_ID
    return is_older or is_removed


def leaves_syncs_of_a_rebalance(sent: Draft, waited: Draft, code: int) -> bool:
    is_sync = (sent.api, waited.api) == ("JoinGroup", "SyncGroup")
    return is_sync and code == ErrorCode.REBALANCE_IN_PROGRESS


class Forgetting(Twin):
    """A side that describes every group as missing."""

    def send(self, place: int, draft: Draft) -> None:
        super().send(place, draft)
        if draft.api == "DescribeGroups":
            ((_, _, self._answers[place]),) = Ours("theirs").send(place, draft)


@pytest.fixture(scope="module")
def report() -> BrokerReport:
    return compare(Twin, 5_000, 1, pause_s=0.0)


def test_a_twin_answers_alike(report: BrokerReport) -> None:
    assert [line for each in report.different for line in each.lines()] == []
    assert report.equal == report.answers >= 5_000
    assert ("held again", "0") in report.rows()


def test_conversations_come_to_what_can_be_answered(report: BrokerReport) -> None:
    assert _REACHED - report.codes.keys() == set()


def test_an_answer_that_is_another_one_is_found() -> None:
    found = compare(lambda: Twin("Heartbeat", 2), 300, 1, pause_s=0.0)
    assert found.different
    assert found.equal < found.answers
    lines = found.different[0].lines()
    assert "Heartbeat" in lines[-3]
    assert lines[-2].split()[0] == "ours"


@pytest.mark.parametrize(("again", "different"), [(Twin, 0), (Silent, 1)])
def test_what_differs_is_held_again_and_counted(again: type[Twin], different: int) -> None:
    sides = iter([Silent(), again()])
    found = compare(lambda: next(sides), 0, 1, pause_s=0.0)
    assert (found.held_again, len(found.different)) == (1, different)
    assert ("held again", "1") in found.rows()


def test_a_report_of_before_what_was_held_again_was_counted_is_read(report: BrokerReport) -> None:
    kept = msgspec.to_builtins(report)
    del kept["held_again"]
    rows = msgspec.convert(kept, BrokerReport).rows()
    assert rows == [row for row in report.rows() if row[0] != "held again"]


def test_an_answer_that_does_not_come_is_found() -> None:
    found = compare(Silent, 0, 1, pause_s=0.0)
    assert [each.theirs for each in found.different] == ["no answer"]


def test_an_answer_that_ours_does_not_give_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Twin, "unasked", lambda _: [2])
    found = compare(Twin, 0, 1, pause_s=0.0)
    assert [each.request for each in found.different] == ["[2] wait"]


def test_what_a_broker_never_answers_is_counted_by_its_row() -> None:
    found = compare(lambda: Leaving(leaves_as_kafka), 1_000, 1, pause_s=0.0)
    assert (found.different, found.held_again) == ([], 0)
    assert found.choices[OLDER] > 1


def test_what_a_rebalance_does_not_answer_is_found() -> None:
    found = compare(lambda: Leaving(leaves_syncs_of_a_rebalance), 1_000, 1, pause_s=0.0)
    assert {each.theirs for each in found.different} == {"no answer"}


def test_a_group_with_a_record_that_is_not_described_is_found() -> None:
    found = compare(Forgetting, 1_000, 1, pause_s=0.0)
    assert found.choices[UNRECORDED] > 1
    assert any("'Empty'" in each.ours for each in found.different)
    assert all("'Dead'" in each.theirs for each in found.different)
