"""A request with a deadline is not executed after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from group_coordinator.coordinator.signatures import RequestKey, Signatures, signed
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.context import SESSION_MS, Context
from tests.coordinator.test_batch import SESSION_MS as BATCH_SESSION_MS
from tests.coordinator.test_batch import Stream, commit, event

MINUTE = 60_000
COMMIT = m.OffsetCommitRequest(topics=(m.OffsetCommitTopic("t", (m.OffsetCommitPartition(0, 9),)),))
CHANGES: list[tuple[str, Any]] = [
    ("offset_commit", COMMIT),
    ("offset_delete", m.OffsetDeleteRequest((m.OffsetDeleteTopic("t", (0,)),))),
    ("delete_groups", m.DeleteGroupsRequest()),
    (
        "join_group",
        m.JoinGroupRequest(session_timeout_ms=500, protocol_type="consumer", protocols=()),
    ),
    ("leave_group", m.LeaveGroupRequest((m.LeavingMember("m"),))),
]


@pytest.fixture
def ctx() -> Context:
    """Return a group with offset 5 of t-0, one minute after its coordinator's clock began."""
    ctx = Context()
    ctx.now = MINUTE
    ctx.commit({("t", 0): 5})
    return ctx


def codes_of(response: m.Response) -> set[int]:
    """Return the error code of a response, or of each of its partitions or members."""
    body = getattr(response, response.api)
    topics = getattr(body, "topics", ())
    members = getattr(body, "members", None) or ()
    inner = {each.error_code for topic in topics for each in topic.partitions}
    inner |= {each.error_code for each in members if hasattr(each, "error_code")}
    return inner or {response.error_code}


def test_at_its_deadline_a_request_is_still_decided(ctx: Context) -> None:
    assert codes_of(ctx.send("offset_commit", COMMIT, deadline=ctx.now).response) == {0}
    assert ctx.fetched() == {("t", 0): 9}


@pytest.mark.parametrize(("api", "body"), CHANGES, ids=[api for api, _ in CHANGES])
def test_after_it_the_request_is_answered_and_changes_nothing(
    ctx: Context, api: str, body: Any
) -> None:
    logged, told = list(ctx.log), list(ctx.events)
    answer = ctx.send(api, body, deadline=ctx.now - 1).response
    assert codes_of(answer) == {ErrorCode.REQUEST_TIMED_OUT}
    assert answer.error_message == "the request was to be decided 1 ms earlier"
    assert (ctx.log, ctx.events) == (logged, told)
    assert ctx.fetched() == {("t", 0): 5}


def test_a_clock_that_is_set_back_puts_the_deadline_off_by_as_much(ctx: Context) -> None:
    """The deadline is a time of the coordinator's clock, whatever the writer's clock says."""
    deadline = ctx.now + 1_000
    ctx.now += 31_000 - MINUTE
    assert codes_of(ctx.send("offset_commit", COMMIT, deadline=deadline).response) == {0}
    ctx.now += MINUTE
    late = ctx.send("delete_groups", m.DeleteGroupsRequest(), deadline=deadline)
    assert late.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_row_that_is_read_again_in_time_is_not_decided_after_all() -> None:
    """Its request id was answered: a batch with an earlier time does not change this."""
    stream = Stream()
    late = event("r", "delete_groups", {}, deadline=MINUTE)
    (answer,) = stream.batch(MINUTE + 1, late).responses
    assert answer.error == "REQUEST_TIMED_OUT"
    assert stream.batch(MINUTE - 1, late).responses == []


def test_a_deadline_is_signed_with_the_request() -> None:
    """A writer of rows cannot put another deadline into a signed request."""
    key = RequestKey("a", "User:alice", b"a" * 32)
    request = signed(m.RequestEvent("r", "g", "offset_commit", offset_commit=COMMIT), key)
    assert Signatures([key]).verify(request).problem is None
    dated = replace(request, deadline=MINUTE)
    assert "is wrong" in str(Signatures([key]).verify(dated).problem)
    assert Signatures([key]).verify(signed(dated, key)).problem is None
    assert "is wrong" in str(
        Signatures([key]).verify(replace(signed(dated, key), deadline=None)).problem
    )


# --- late commits and the session of their member ------------------------------------------------


def late_commit(ctx: Context, body: m.OffsetCommitRequest, late_ms: int) -> None:
    answer = ctx.send("offset_commit", body, deadline=ctx.now - late_ms).response
    assert codes_of(answer) == {ErrorCode.REQUEST_TIMED_OUT}


def test_late_commits_keep_a_member_that_sent_them_in_time() -> None:
    """Each commit is decided late, and the member sends no heartbeats."""
    ctx = Context()
    member = ctx.stable_group()
    body = replace(COMMIT, generation_id=member.generation, member_id=member.member_id)
    for _ in range(10):
        ctx.advance(SESSION_MS // 2)
        late_commit(ctx, body, SESSION_MS // 4)
    assert ctx.members == [member.member_id]
    ctx.advance(SESSION_MS - SESSION_MS // 4)
    assert ctx.members == []


def test_a_late_commit_renews_the_session_from_its_deadline_and_never_shortens_it() -> None:
    ctx = Context()
    member = ctx.stable_group()
    body = replace(COMMIT, generation_id=member.generation, member_id=member.member_id)
    (data,) = ctx.group.members.values() if ctx.group else ()
    ctx.now += SESSION_MS // 2
    late_commit(ctx, body, 1)
    assert data.session_deadline == ctx.now - 1 + SESSION_MS
    late_commit(ctx, body, SESSION_MS)
    assert data.session_deadline == ctx.now - 1 + SESSION_MS


@pytest.mark.parametrize(
    "wrong",
    [{"generation_id": 7}, {"member_id": "stranger"}, {"group_instance_id": "stranger"}, {}],
    ids=["generation", "member", "instance", "no member"],
)
def test_a_late_commit_of_another_member_or_generation_renews_no_session(wrong: Any) -> None:
    ctx = Context()
    member = ctx.stable_group()
    right = {"generation_id": member.generation, "member_id": member.member_id} if wrong else {}
    body = replace(COMMIT, **{**right, **wrong})
    ctx.now += SESSION_MS // 2
    late_commit(ctx, body, 1)
    ctx.advance(SESSION_MS // 2)
    assert ctx.members == []


def test_a_late_commit_that_is_read_again_renews_nothing() -> None:
    stream = Stream()
    member_id = stream.stable()
    body = json.loads(commit("late", 9, member_id, 1))["offset_commit"]
    late = event("late", "offset_commit", body, deadline=2_000)
    stream.batch(5_000, late)
    renewed = stream.deadline
    assert renewed == 2_000 + BATCH_SESSION_MS
    stream.batch(6_000, late)
    assert stream.deadline == renewed
