"""Tests of expected differences from a broker: each row of the page, by the preceding responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.replay.trace import Json
from group_coordinator.schemas.errors import ErrorCode
from tests.trials.broker.choices import (
    CHOICES,
    OLDER,
    REMOVED,
    Past,
    another_leader,
    is_unrecorded,
    never_answered,
)
from tests.trials.broker.exchange import Draft, same


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
    """Return the state after a member's join is answered."""
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
