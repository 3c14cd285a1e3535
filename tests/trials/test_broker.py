"""The trial beside a broker: what it compares, and that it finds an answer that is another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from group_coordinator.pipeline.replay.trace import Json
from group_coordinator.schemas.errors import ErrorCode
from tests.trials.broker.choices import (
    CHOICES,
    OLDER,
    REMOVED,
    UNRECORDED,
    Past,
    another_leader,
    is_unrecorded,
    never_answered,
)
from tests.trials.broker.exchange import Draft, decoded, same
from tests.trials.broker.report import BrokerReport
from tests.trials.broker.sides import Ours
from tests.trials.broker.trial import compare

# What a conversation of chance must reach.
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
    """Another coordinator of ours in the broker's place; the nth answer to `wrong` is wrong."""

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
        """It has no connections."""


class Silent(Twin):
    """It never answers."""

    def answer(self, _place: int, _draft: Draft, _may_lack: bool = False) -> bytes | None:
        return None


Leaves = Callable[[Draft, Draft, int], bool]


class Leaving(Twin):
    """It leaves out an answer to what waited, if `leaves` of what was sent, that, and its code."""

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
    """It describes every group as one that there is not."""

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


@pytest.mark.parametrize("row", CHOICES)
def test_what_may_differ_is_a_row_of_the_page(row: str) -> None:
    page = Path(__file__).parents[2] / "coordinator" / "DIFFERENCES.md"
    assert f"| {row} |" in page.read_text("utf-8")


def asked(api: str, member_id: str = "", version: int = 3, **fields: Json) -> Draft:
    return Draft(api, version, {"member_id": same(member_id), **fields})


def leaving(member_id: str = "", instance_id: str | None = None) -> Draft:
    named = {"member_id": same(member_id), "group_instance_id": instance_id}
    return Draft("LeaveGroup", 3, {"members": [named]})


def joined(member_id: str, instance_id: str | None = None, leader: str = "a") -> Past:
    """The past after a member's join is answered."""
    past = Past()
    answer = {"error_code": ErrorCode.NONE, "leader": leader, "member_id": member_id}
    past.hear(asked("JoinGroup", group_instance_id=instance_id), answer)
    return past


def test_another_leader_is_a_choice_only_once_the_one_before_is_gone() -> None:
    join = asked("JoinGroup")
    mine = {"error_code": 0, "generation_id": 2, "leader": "a", "members": []}
    other = {**mine, "leader": "b"}
    assert another_leader(joined("x", leader="c"), join, mine, other)
    assert not another_leader(joined("x", leader="a"), join, mine, other)
    assert not another_leader(joined("x", leader="b"), join, mine, other)
    assert not another_leader(joined("x", leader="c"), join, mine, mine)
    assert not another_leader(Past(), join, mine, other)
    assert not another_leader(joined("x", leader="c"), join, mine, {**other, "generation_id": 3})


def test_a_refused_join_says_nothing_of_who_leads() -> None:
    past = joined("x", "i0", leader="c")
    past.hear(
        asked("JoinGroup", group_instance_id="i0"),
        {"error_code": ErrorCode.FENCED_INSTANCE_ID, "leader": "", "member_id": "y"},
    )
    assert past == joined("x", "i0", leader="c")


@pytest.mark.parametrize(
    ("ours", "theirs", "may"),
    [("Empty", "Dead", True), ("Stable", "Dead", False), ("Empty", "Stable", False)],
)
def test_only_a_group_without_a_record_may_be_unknown(ours: str, theirs: str, may: bool) -> None:
    mine, other = ({"groups": [{"group_state": state}]} for state in (ours, theirs))
    assert is_unrecorded(Past(), asked("DescribeGroups"), mine, other) is may
    assert not is_unrecorded(Past(), asked("Heartbeat"), {}, {})


def committed(*codes: ErrorCode) -> Json:
    return {"topics": [{"partitions": [{"error_code": code} for code in codes]}]}


@pytest.mark.parametrize(
    ("answers", "is_recorded"),
    [
        ([], False),
        ([("SyncGroup", {"error_code": ErrorCode.NONE})], True),
        ([("SyncGroup", {"error_code": ErrorCode.ILLEGAL_GENERATION})], False),
        ([("Heartbeat", {"error_code": ErrorCode.NONE})], False),
        (
            [("OffsetCommit", committed(ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE))],
            True,
        ),
        ([("OffsetCommit", committed(ErrorCode.OFFSET_METADATA_TOO_LARGE))], False),
        (
            [
                ("OffsetCommit", committed(ErrorCode.NONE)),
                ("OffsetCommit", committed(ErrorCode.ILLEGAL_GENERATION)),
                ("SyncGroup", {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}),
                ("DeleteGroups", {"results": [{"error_code": ErrorCode.NON_EMPTY_GROUP}]}),
            ],
            True,
        ),
        (
            [
                ("SyncGroup", {"error_code": ErrorCode.NONE}),
                ("DeleteGroups", {"results": [{"error_code": ErrorCode.NONE}]}),
            ],
            False,
        ),
    ],
)
def test_a_group_with_a_record_is_known(answers: list[tuple[str, Json]], is_recorded: bool) -> None:
    past = Past()
    for api, answer in answers:
        past.hear(asked(api), answer)
    mine, other = ({"groups": [{"group_state": state}]} for state in ("Empty", "Dead"))
    assert is_unrecorded(past, asked("DescribeGroups"), mine, other) is not is_recorded


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_the_older_of_two_that_wait_may_lack_an_answer(api: str) -> None:
    other_api = {"JoinGroup": "SyncGroup", "SyncGroup": "JoinGroup"}[api]
    rebalance = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}

    def lacks(waiting: Draft, sent: Draft) -> str | None:
        return never_answered(Past(), waiting, sent, rebalance)

    assert lacks(asked(api, "a"), asked(api, "a")) == OLDER
    assert lacks(asked(api, "a"), asked(api, "b")) is None
    assert lacks(asked(api, "a"), asked(other_api, "a")) is None
    assert lacks(asked(api, "a"), asked("Heartbeat", "a")) is None
    assert lacks(asked(api), asked(api)) is None
    assert never_answered(Past(), asked(api, "a"), asked(api, "a"), {"error_code": 0}) is None


@pytest.mark.parametrize(
    ("sent", "row"),
    [
        (asked("LeaveGroup", "a", 2), REMOVED),
        (asked("LeaveGroup", "b", 2), None),
        (asked("LeaveGroup", "", 2), None),
        (leaving("a"), REMOVED),
        (leaving("b"), None),
        (leaving("", "i0"), REMOVED),
        (leaving("", "i1"), None),
        (leaving("b", "i0"), None),
        # A broker answers 82 to the sync of a static member that is replaced.
        (asked("JoinGroup", group_instance_id="i0"), None),
        (asked("SyncGroup", "a"), None),
    ],
)
def test_the_sync_of_a_member_may_lack_an_answer_once_it_is_removed(
    sent: Draft, row: str | None
) -> None:
    unknown = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
    assert never_answered(joined("a", "i0"), asked("SyncGroup", "a"), sent, unknown) == row
    assert never_answered(joined("a", "i0"), asked("JoinGroup", "a"), sent, unknown) is None
    done = {"error_code": ErrorCode.NONE}
    assert never_answered(joined("a", "i0"), asked("SyncGroup", "a"), sent, done) is None


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
