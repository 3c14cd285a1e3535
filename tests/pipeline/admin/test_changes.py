"""What an operator changes goes through the coordinator, and is shown before it is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.admin.changes import delete_groups, execute_changes
from group_coordinator.pipeline.admin.history import plan_deletions, plan_undo
from group_coordinator.pipeline.admin.plans import OffsetChange, UnknownGroup
from group_coordinator.pipeline.admin.reset import ResetScenario, plan_resets
from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.errors import Failure, UsageError
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.schemas.messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RequestEvent,
)
from tests.pipeline.asking import ask
from tests.pipeline.small import SmallCoordinator
from tests.roots import make_tables
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    """A root with a coordinator, and a group "g" with offsets 10 and 20 of topic "t"."""
    root = str(tmp_path)
    make_tables(root)
    coordinator = SmallCoordinator(root)
    try:
        commit(root, "g", 10, 20)
        yield root
    finally:
        coordinator.stop()


def commit(root: str, group_id: str, *offsets: int) -> None:
    partitions = tuple(OffsetCommitPartition(i, offset) for i, offset in enumerate(offsets))
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("t", partitions),))
    # Not by the tools: an ordinary commit, which undo must leave alone.
    request = RequestEvent(f"commit-{offsets}", group_id, "offset_commit", offset_commit=body)
    assert ask(root, request).error == "NONE"


def offsets(root: str) -> dict[int, int]:
    query = "SELECT \"partition\", committed_offset FROM committed_offsets WHERE group_id = 'g'"
    return dict(Catalog(root).query(query).rows)


def planned(root: str, aim: ResetScenario, topics: list[str]) -> tuple[OffsetChange, ...]:
    (plan,) = plan_resets(root, ["g"], topics, aim)
    assert plan.problem is None
    return plan.changes


def test_a_reset_is_planned_shown_and_then_done(root: str) -> None:
    changes = planned(root, ResetScenario("shift-by", -15), [])
    assert changes == (OffsetChange("t", 0, 10, 0), OffsetChange("t", 1, 20, 5))
    assert offsets(root) == {0: 10, 1: 20}
    execute_changes(root, "g", changes)
    assert offsets(root) == {0: 0, 1: 5}


def test_a_reset_can_be_undone_once_and_again(root: str) -> None:
    execute_changes(root, "g", planned(root, ResetScenario("to-offset", 7), ["t"]))
    undo = plan_undo(root, "g").changes
    assert undo == (OffsetChange("t", 0, 7, 10), OffsetChange("t", 1, 7, 20))
    execute_changes(root, "g", undo)
    assert offsets(root) == {0: 10, 1: 20}
    assert plan_undo(root, "g").changes == (
        OffsetChange("t", 0, 10, 7),
        OffsetChange("t", 1, 20, 7),
    )


def test_undo_gives_back_what_was_deleted_and_takes_what_was_new(root: str) -> None:
    both = (OffsetChange("t", 0, 10, None), OffsetChange("t", 5, None, 3))
    execute_changes(root, "g", both)
    assert offsets(root) == {1: 20, 5: 3}
    undo = plan_undo(root, "g").changes
    assert undo == (OffsetChange("t", 0, None, 10), OffsetChange("t", 5, 3, None))
    execute_changes(root, "g", undo)
    assert offsets(root) == {0: 10, 1: 20}


def test_a_deleted_topic_takes_its_offsets_along(root: str) -> None:
    """The offsets of all groups are deleted, also without requests to these groups."""
    create_topic(root, "t", 2)
    create_topic(root, "u", 1)
    commit(root, "h", 30)
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("u", (OffsetCommitPartition(0, 5),)),))
    assert ask(root, RequestEvent("u", "h", "offset_commit", offset_commit=body)).error == "NONE"
    told = CliRunner().invoke(make_app(), ["topics", "delete", "t", "--root", root]).output
    assert told == "topic 't' deleted; the coordinator deletes its offsets of 2 groups\n"
    what = "SELECT group_id, reason FROM group_events WHERE event = 'offsets_deleted' ORDER BY ALL"
    assert wait_for_rows(root, what, 2) == [
        ("g", "2 offsets of deleted topics: t-0, t-1"),
        ("h", "1 offsets of deleted topics: t-0"),
    ]
    left = "SELECT group_id, topic FROM committed_offsets"
    assert Catalog(root).query(left).rows == [("h", "u")]
    told = CliRunner().invoke(make_app(), ["topics", "delete", "u", "--root", root]).output
    assert told == "topic 'u' deleted; the coordinator deletes its offsets of 1 groups\n"
    create_topic(root, "u", 1)
    fetch = OffsetFetchRequest((OffsetFetchTopic("u", (0,)),))
    answer = ask(root, RequestEvent("f", "h", "offset_fetch", offset_fetch=fetch))
    assert answer.offset_fetch is not None
    assert answer.offset_fetch.topics[0].partitions[0].committed_offset == -1


def wait_for_rows(root: str, query: str, count: int) -> list[tuple[Any, ...]]:
    """The query's rows as soon as there are so many; fails if there never are."""

    def found() -> list[tuple[Any, ...]]:
        return Catalog(root).query(query).rows

    wait_until(lambda: f"{len(found())} rows of {count}", lambda: len(found()) >= count)
    return found()


def test_what_was_never_reset_cannot_be_undone(root: str) -> None:
    with pytest.raises(Failure, match="'g' has no change by an operator to undo"):
        plan_undo(root, "g")


def test_offsets_are_deleted_through_the_coordinator(root: str) -> None:
    (plan,) = plan_deletions(root, ["g"], ["t"])
    execute_changes(root, "g", plan.changes)
    assert offsets(root) == {}
    with pytest.raises(UnknownGroup, match="there is no group 'g'"):
        plan_deletions(root, ["g"], ["t"])


def test_a_group_with_members_is_left_alone_and_why_is_said(root: str) -> None:
    join = JoinGroupRequest(
        session_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b""),),
    )
    request = RequestEvent("j1", "g", "join_group", client_id="me", join_group=join)
    assert ask(root, request).error == "MEMBER_ID_REQUIRED"
    again = _with_id(join, _member(root, request))
    second = RequestEvent("j2", "g", "join_group", client_id="me", join_group=again)
    with pytest.raises(Failure, match=r"no answer within 0\.2 s"):
        ask(root, second, timeout_s=0.2)  # parked: the group is waiting for more members
    (refused,) = delete_groups(root, ["g"])
    assert "NON_EMPTY_GROUP (the group has members; stop them first" in str(refused.error)
    with pytest.raises(Failure, match=r"UNKNOWN_MEMBER_ID .the group has members"):
        execute_changes(root, "g", [OffsetChange("t", 0, 10, 5)])
    assert offsets(root) == {0: 10, 1: 20}


def _member(root: str, request: object) -> str:
    rows = Catalog(root).query(
        "SELECT join_group.member_id FROM responses WHERE error = 'MEMBER_ID_REQUIRED'"
    )
    return str(rows.rows[0][0])


def _with_id(join: JoinGroupRequest, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        session_timeout_ms=join.session_timeout_ms,
        protocol_type=join.protocol_type,
        protocols=join.protocols,
        member_id=member_id,
    )


def test_without_a_coordinator_the_failure_says_so(tmp_path: Path) -> None:
    make_tables(str(tmp_path))
    with pytest.raises(Failure, match=r"no answer within 0\.1 s: is a coordinator running on"):
        delete_groups(str(tmp_path), ["g"], timeout_s=0.1)


@pytest.mark.full
def test_the_commands(root: str) -> None:
    run = CliRunner().invoke
    reset = ["offsets", "reset", "g", "--root", root]
    shown = run(make_app(), [*reset, "--to-offset", "3", "--format", "json"])
    assert shown.exit_code == 0
    plan = '{"group_id":"g","topic":"t","partition":0,"committed_offset":10,"new_offset":3}'
    assert plan in shown.output
    assert "nothing was changed: add --execute to change the offsets" in shown.output
    assert offsets(root) == {0: 10, 1: 20}
    done = run(make_app(), [*reset, "--to-offset", "3", "--execute"])
    assert "2 offsets of 1 group changed" in done.output
    assert offsets(root) == {0: 3, 1: 3}
    assert run(make_app(), reset).exit_code == 2
    assert run(make_app(), [*reset, "--to-latest", "--to-earliest"]).exit_code == 2
    delete = ["groups", "delete", "g", "--root", root]
    assert "nothing was deleted: add --execute" in run(make_app(), delete).output
    assert offsets(root) == {0: 3, 1: 3}
    assert "1 group deleted" in run(make_app(), [*delete, "--execute"]).output
    assert run(make_app(), ["groups", "list", "--root", root, "--format", "json"]).output == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        "groups describe nobody",
        "groups describe g nobody --members",
        "groups delete nobody",
        "offsets show nobody",
        "offsets delete nobody",
        "offsets clone nobody --to h",
        "offsets undo nobody",
        "offsets diff nobody --from 2026-01-01T00:00:00",
        "offsets reset nobody --to-offset 1",
    ],
)
def test_an_unknown_group_is_one_line_and_status_1(tmp_path: Path, words: str) -> None:
    make_tables(str(tmp_path))
    done = CliRunner().invoke(make_app(), [*words.split(), "--root", str(tmp_path)])
    assert isinstance(done.exception, Failure)
    assert "nobody" in str(done.exception) or "'g'" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_change_of_nothing_is_one_line(tmp_path: Path) -> None:
    make_tables(str(tmp_path))
    words = ["offsets", "reset", "--all-groups", "--to-latest", "--root", str(tmp_path)]
    done = CliRunner().invoke(make_app(), words)
    assert (done.exit_code, done.output) == (0, "there is nothing to change\n")


def test_an_offset_below_0_is_a_wrong_call(tmp_path: Path) -> None:
    make_tables(str(tmp_path))
    words = ["offsets", "reset", "g", "--to-offset", "-3", "--root", str(tmp_path)]
    done = CliRunner().invoke(make_app(), words)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == "an offset must be at least 0, not -3"
