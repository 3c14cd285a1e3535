"""The pages of the golden root, and of roots with the worst names that clients can think of."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from msgspec import structs
from starlette.testclient import TestClient

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.ui.app import make_app
from group_coordinator.pipeline.ui.root_snapshot import SnapshotCache, Unreadable
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.records import (
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    MemberMetadata,
)
from group_coordinator.schemas.tables import GROUP_EVENTS, RESPONSES, to_arrow, to_events
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.ui.asking import ADDRESS, browser, links, rows_of, text

pytestmark = pytest.mark.slow

GOLDEN = str(Path(__file__).parents[2] / "golden" / "0.1.0" / "root")
BAD = "<script>alert(1)</script>\"'&/../ü\n🙂"


@pytest.fixture(scope="module")
def golden() -> TestClient:
    return browser(GOLDEN)


def page(client: TestClient, address: str, **query: str) -> str:
    answer = client.get(address, params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


def names(markup: str) -> list[str]:
    return [row[0] for row in rows_of(markup)]


# --- the list -------------------------------------------------------------------------------------


def test_the_list_shows_every_group_with_its_state(golden: TestClient) -> None:
    rows = {row[0]: row for row in rows_of(page(golden, "/"))}
    assert rows["stable"][1] == "Stable"
    assert rows["emptied"][1] == "Empty"
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"q": "STAB"}, ["stable"]),
        ({"q": "no such"}, []),
        ({"state": "PreparingRebalance"}, ["preparing"]),
        ({"state": "Nowhere"}, []),
        ({"topic": "nowhere"}, []),
        ({"verdict": "stopped"}, []),
        ({"q": "sta", "sort": "1; DROP TABLE groups", "page": "x"}, ["stable"]),
    ],
)
def test_the_list_is_searched_and_filtered(
    golden: TestClient, query: dict[str, str], expected: list[str]
) -> None:
    assert names(page(golden, "/", **query)) == expected


@pytest.mark.full
@pytest.mark.parametrize("sort", ["group", "worst", "state", "verdict", "members", "lag", "delay"])
def test_the_list_is_sorted_by_each_column(golden: TestClient, sort: str) -> None:
    assert sorted(names(page(golden, "/", sort=sort))) == names(page(golden, "/"))


@pytest.mark.full
def test_many_groups_are_divided_into_pages(root: str) -> None:
    log = Log(root)
    log.append(*(commit(f"g{number:03}", 1, 5) for number in range(250)))
    client = browser(root)
    first, second = page(client, "/"), page(client, "/", page="2")
    last = page(client, "/", page="99999")
    every = [*names(first), *names(second), *names(last)]
    assert every == [f"g{number:03}" for number in range(250)]
    assert "201 to 250 of 250" in text(last)
    assert links(first, "/?page=") == ["/?page=2", "/?page=3"]


# --- a group --------------------------------------------------------------------------------------


def test_a_group_s_page_tells_its_members_its_history_and_its_commits(golden: TestClient) -> None:
    told = page(golden, "/group", id="stable")
    (member,) = [row for row in rows_of(told, "Members") if "leader" in row[0]]
    assert member[1].count("-") > 3
    assert "Generation 1" in text(told)
    assert "state Stable" in text(told)


@pytest.mark.full
def test_what_is_linked_from_a_group_is_there(golden: TestClient) -> None:
    """Of each group the first request, and of one group all of them."""
    linked = [
        sorted(set(links(page(golden, "/group", id=name), "/request")))
        for name in names(page(golden, "/"))
    ]
    for link in {*(each[0] for each in linked if each), *max(linked, key=len)}:
        assert golden.get(link).status_code == 200


@pytest.mark.full
def test_a_group_that_is_gone_keeps_its_history(root: str) -> None:
    events = [GroupEvent(5, "gone", "group_deleted", reason="deleted by an operator")]
    Appender(table_uri(root, GROUP_EVENTS)).append(to_events(events))
    told = text(page(browser(root), "/group", id="gone"))
    assert "does not exist any more" in told
    assert "group deleted deleted by an operator" in told


@pytest.mark.parametrize("address", ["/group", "/request", "/static", "/nowhere"])
def test_what_is_unknown_is_not_found(golden: TestClient, address: str) -> None:
    assert golden.get(address, params={"id": "nobody"}).status_code == 404


# --- a request, and the sender of a change --------------------------------------------------------


def answered(root: str, request: RequestEvent, error: str = "NONE", code: int = 0) -> None:
    RequestLog(root).append([request])
    response = Response(
        request.request_id, request.group_id, request.api, code, error, responded_at=7_000
    )
    Appender(table_uri(root, RESPONSES)).append(to_arrow(RESPONSES, [response]))


def reset(request_id: str, group_id: str = "g", **fields: object) -> RequestEvent:
    partitions = (OffsetCommitPartition(0, 17), OffsetCommitPartition(1, 18))
    return RequestEvent(
        request_id,
        group_id,
        "offset_commit",
        sent_at=5_000,
        offset_commit=OffsetCommitRequest(topics=(OffsetCommitTopic("t", partitions),)),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.full
def test_a_request_s_way_leads_from_the_request_to_its_answer(root: str) -> None:
    answered(root, reset("r1", principal="User:ann", client_id="tool"))
    Log(root).append(commit("g", 17, 7_000))
    told = text(page(browser(root), "/request", id="r1"))
    assert "set t 0 to 17, 1 to 18" in told
    assert "decided 2 s after it was sent" in told
    assert "in a batch of 1 answer to 1 group" in told
    assert "User:ann" in told


def test_the_auditor_sees_who_changed_what_and_how_it_went(root: str) -> None:
    answered(root, reset("r1", principal="User:ann", client_id="tool", client_host="/10.0.0.1"))
    deletion = RequestEvent(
        "r2", "h", "delete_groups", sent_at=6_000, delete_groups=DeleteGroupsRequest()
    )
    answered(root, deletion, "NON_EMPTY_GROUP", 68)
    RequestLog(root).append([reset("r3", "unanswered")])
    client = browser(root)
    row = rows_of(page(client, "/changes"), "Changes")[1]
    when, group, what, _, result, who, client_id, _ = row
    assert (when, group, what) == ("1970-01-01 00:00:07", "g", "set t 0 to 17, 1 to 18")
    assert (result, who, client_id) == ("done", "User:ann", "tool/10.0.0.1")
    results = {row[1]: row[4] for row in rows_of(page(client, "/changes"), "Changes")}
    assert results == {"h": "NON_EMPTY_GROUP", "g": "done", "unanswered": "no answer"}


FILTERED: list[tuple[dict[str, str], list[str]]] = [
    ({"who": "ANN"}, ["g"]),
    ({"group": "g"}, ["g"]),
    ({"since": "1970-01-01T00:00:05", "until": "1970-01-01T00:00:05.5"}, ["g"]),
    ({"since": "no time", "page": "-1"}, ["h", "g"]),
    ({"since": "2030-01-01T00:00"}, []),
    ({"kind": "members"}, []),
]


@pytest.mark.full
def test_changes_are_filtered(root: str) -> None:
    RequestLog(root).append([reset("r1", principal="User:ann")])
    deletion = RequestEvent(
        "r2", "h", "delete_groups", sent_at=6_000, delete_groups=DeleteGroupsRequest()
    )
    RequestLog(root).append([deletion])
    client = browser(root)
    for query, expected in FILTERED:
        shown = rows_of(page(client, "/changes", **query), "Changes")
        assert [row[1] for row in shown] == expected, query


def decided(root: str, log: Log, at: int, offset: int | None, **fields: str) -> None:
    """A commit without a member at a time, and the record that it became."""
    request = f"{fields.pop('prefix', '')}r{at}"
    RequestLog(root).append([structs.replace(reset(request, **fields), sent_at=at)])
    log.append(structs.replace(commit("g", offset, at), request_id=request))


@pytest.mark.full
def test_an_operator_is_told_from_a_consumer_that_assigns_partitions_to_itself(root: str) -> None:
    """Neither is a member. The consumer commits all the time, and only forward."""
    log = Log(root)
    for at, offset in enumerate((10, 20, 20, 30, 40)):
        decided(root, log, at, offset, principal="User:stream")
    decided(root, log, 5, 15, principal="User:ann")
    decided(root, log, 6, 90, principal="User:bob", prefix="offsets-reset/")
    client = browser(root)

    def shown(**query: str) -> list[tuple[str, str]]:
        return [(row[5], row[3]) for row in rows_of(page(client, "/changes", **query), "Changes")]

    of_stream = [("User:stream", did) for did in ("set forward", "set again", "created")]
    of_ann, of_bob = ("User:ann", "set back"), ("User:bob", "set forward")
    assert shown() == [of_bob, of_ann, of_stream[2]]
    assert shown(kind="memberless", who="stream") == [of_stream[n] for n in (0, 0, 1, 0, 2)]
    assert shown(did="set back") == [of_ann]
    told = text(page(client, "/changes", kind="memberless"))
    assert "User:stream: 3 set forward; User:ann: 1 set back; User:bob: 1 set forward" in told


@pytest.mark.full
def test_requests_that_miss_everything_are_shown_all_the_same(root: str) -> None:
    empty = OffsetCommitRequest(topics=())
    RequestLog(root).append(
        [
            RequestEvent("r1", "g", "offset_delete"),
            RequestEvent("r2", "g", "leave_group"),
            RequestEvent("r3", "g", "offset_commit", offset_commit=empty),
            RequestEvent("r4", "g", "no such api"),
        ]
    )
    client = browser(root)
    assert len(rows_of(page(client, "/changes", kind="all"), "Changes")) == 3
    for name in ("r1", "r2", "r3", "r4"):
        assert "No response is known" in page(client, "/request", id=name)


# --- the worst names ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A root where whatever a client may choose is markup."""
    root = str(tmp_path_factory.mktemp("bad"))
    member = MemberMetadata(BAD, BAD, BAD, BAD, 1, 2, b"", b"")
    value = GroupMetadataValue(BAD, 1, BAD, BAD, 5, (member,))
    log = Log(root)
    log.append(
        CoordinatorRecord(
            0, "group_metadata", BAD, 5, group_metadata=value, reason=BAD, request_id=BAD
        ),
        commit(BAD, 7, 5, (BAD, 0)),
        commit("", 7, 5),
    )
    events = [
        GroupEvent(5, BAD, "transition", "Empty", "PreparingRebalance", 1, reason=BAD),
        GroupEvent(5, BAD, BAD, member_id=BAD, reason=BAD, request_id=BAD),
    ]
    Appender(table_uri(root, GROUP_EVENTS)).append(to_events(events))
    answered(root, reset(BAD, BAD, client_id=BAD, principal=BAD, client_host=BAD), BAD)
    return browser(root)


@pytest.mark.parametrize("address", ["/", "/group", "/request", "/changes", "/group/reset"])
def test_no_name_becomes_markup(bad: TestClient, address: str) -> None:
    told = bad.get(address, params={"id": BAD, "q": BAD, "who": BAD, "group": BAD}).text
    assert "<script>alert" not in told
    assert re.findall("<script[^>]*>", told) == re.findall('<script src="/static/[^>]*>', told)
    assert address == "/group/reset" or "&lt;script&gt;alert(1)" in told


@pytest.mark.full
def test_a_link_leads_to_the_group_whatever_its_name(bad: TestClient) -> None:
    listed = page(bad, "/")
    for link in links(listed, "/group"):
        assert bad.get(link).status_code == 200
    assert len(links(listed, "/group")) == 2


@pytest.mark.full
def test_a_text_a_thousand_times_larger_does_not_fill_the_page(root: str) -> None:
    huge = "x" * 1_000_000
    member = MemberMetadata(huge, None, huge, huge, 1, 2, b"", b"")
    value = GroupMetadataValue("consumer", 1, huge, huge, 5, (member,))
    Log(root).append(
        CoordinatorRecord(0, "group_metadata", "g", 5, group_metadata=value, reason=huge)
    )
    client = browser(root)
    assert len(page(client, "/")) < 20_000
    assert len(page(client, "/group", id="g")) < 20_000


# --- a root that changes or is not there ----------------------------------------------------------


def test_a_root_that_is_missing_says_how_to_begin_and_is_shown_once_it_is_there(
    tmp_path: Path, empty_root: Path
) -> None:
    root = str(tmp_path / "later")
    client = browser(root, refresh_s=0.0)
    answer = client.get("/")
    assert answer.status_code == 503
    assert f"start a coordinator with `run --root {root}`" in answer.text
    shutil.copytree(empty_root, root)
    assert "There are no groups yet" in page(client, "/")


def test_what_was_read_last_stays_while_the_tables_cannot_be_read(root: str) -> None:
    Log(root).append(commit("g", 1, 5))
    held = SnapshotCache(root)
    client = TestClient(make_app(held), base_url=ADDRESS)
    assert names(page(client, "/")) == ["g"]
    shutil.rmtree(root)
    with pytest.raises(Unreadable, match="no tables under"):
        held.refreshed()
    told = page(client, "/")
    assert names(told) == ["g"]
    assert "The tables cannot be read now." in told


@pytest.mark.full
def test_a_table_that_is_rewritten_under_a_reader_is_read_anew(root: str) -> None:
    log = Log(root)
    log.append(commit("g", 1, 5))
    client = browser(root)
    commits = rows_of(page(client, "/group", id="g"), "Latest commits")
    assert [row[4] for row in commits] == ["1"]
    old = list((Path(root) / "offsets_topic").rglob("*.parquet"))
    log.append(commit("g", 2, 6))
    DeltaTable(log.uri).optimize.compact()
    for file in old:
        file.unlink()
    commits = rows_of(page(client, "/group", id="g"), "Latest commits")
    assert [row[4] for row in commits] == ["2", "1"]
