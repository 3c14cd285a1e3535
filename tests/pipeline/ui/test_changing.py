"""A reset through the pages: it asks first, changes what it showed, and only that, once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.ui.app import Access
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from tests.pipeline.asking import ask
from tests.pipeline.offsets_log import Log
from tests.pipeline.offsets_log import commit as record
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.ui.asking import ADDRESS, KEY, browser, changing, rows_of, text

pytestmark = pytest.mark.slow

ORIGIN = {"origin": ADDRESS}
FORM = {"id": "g", "aim": "shift-by", "value": "-15"}


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    """A coordinator of a root with a group "g" that has offsets 10 and 20 of topic "t"."""
    running = SmallCoordinator(root)
    try:
        commit(root, 10, 20)
        yield running
    finally:
        running.stop()


def commit(root: str, *offsets: int) -> None:
    partitions = tuple(OffsetCommitPartition(i, offset) for i, offset in enumerate(offsets))
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("t", partitions),))
    request = RequestEvent(f"commit-{offsets}", "g", "offset_commit", offset_commit=body)
    assert ask(root, request).error == "NONE"


def offsets(root: str) -> dict[int, int]:
    query = "SELECT \"partition\", committed_offset FROM committed_offsets WHERE group_id = 'g'"
    return dict(Catalog(root).query(query).rows)


def token_of(page: str) -> str:
    return re.findall('name="token" value="([^"]+)"', page)[0]


@pytest.mark.usefixtures("coordinator")
def test_a_reset_asks_first_and_then_does_what_it_showed_once(root: str) -> None:
    client = changing(root)
    preview = client.get("/group/reset", params=FORM).text
    shown = rows_of(preview, "What would change")
    assert shown == [["t", "0", "10", "0", "-10"], ["t", "1", "20", "5", "-15"]]
    assert "Nothing has been changed yet." in text(preview)
    assert offsets(root) == {0: 10, 1: 20}
    token = token_of(preview)
    done = client.post("/group/apply", data={"token": token}, headers=ORIGIN)
    assert done.status_code == 200
    assert "2 offsets of g changed" in text(done.text)
    assert offsets(root) == {0: 0, 1: 5}
    again = client.post("/group/apply", data={"token": token}, headers=ORIGIN)
    assert again.status_code == 409
    assert offsets(root) == {0: 0, 1: 5}
    undo = client.get("/group/undo", params={"id": "g"}).text
    client.post("/group/apply", data={"token": token_of(undo)}, headers=ORIGIN)
    assert offsets(root) == {0: 10, 1: 20}
    told = client.get("/changes", params={"group": "g"}).text
    assert [row[2] for row in rows_of(told, "Changes")][:2] == [
        "set t 0 to 10, 1 to 20",
        "set t 0 to 0, 1 to 5",
    ]


@pytest.mark.full
@pytest.mark.usefixtures("coordinator")
def test_nothing_is_changed_if_the_offsets_moved_after_the_preview(root: str) -> None:
    client = changing(root)
    token = token_of(client.get("/group/reset", params=FORM).text)
    commit(root, 11, 20)
    answer = client.post("/group/apply", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 409
    assert "offset of t 0 is 11 now and was 10 in the preview" in text(answer.text)
    assert offsets(root) == {0: 11, 1: 20}


@pytest.mark.full
def test_without_a_coordinator_the_page_says_that_nothing_is_changed(root: str) -> None:
    Log(root).append(record("g", 10, 5))
    client = changing(root, timeout_s=0.1)
    token = token_of(client.get("/group/reset", params=FORM).text)
    answer = client.post("/group/apply", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 409
    assert "is a coordinator running" in text(answer.text)
    assert offsets(root) == {0: 10}


@pytest.mark.full
def test_by_default_nobody_is_offered_a_change(root: str) -> None:
    Log(root).append(record("g", 10, 5))
    client = browser(root)
    assert "Reset" not in client.get("/group", params={"id": "g"}).text
    for address in ("/group/reset", "/group/undo"):
        answer = client.get(address, params=FORM)
        assert answer.status_code == 403
        assert "--allow-changes" in answer.text


@pytest.mark.full
@pytest.mark.parametrize("cookie", [None, "", "another key", "ü"])
def test_without_the_key_nobody_changes_anything(root: str, cookie: str | None) -> None:
    client = browser(root, Access(KEY))
    if cookie is not None:
        client.get("/", params={"key": cookie})
    assert client.get("/group/reset", params=FORM).status_code == 403
    assert client.post("/group/apply", data={"token": "x"}, headers=ORIGIN).status_code == 403


def test_the_key_leaves_the_address_and_is_hidden_from_scripts(root: str) -> None:
    client = browser(root, Access(KEY))
    answer = client.get("/", params={"key": KEY}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_wrong_key_does_not_replace_the_right_one(root: str) -> None:
    client = changing(root)
    answer = client.get("/", params={"key": "bogus"}, follow_redirects=False)
    assert "set-cookie" not in answer.headers
    assert client.get("/group/reset", params=FORM).status_code != 403


REFUSED = [
    ({"aim": "to-offset", "value": "x"}, "'x' is not a whole number"),
    ({"aim": "to-offset", "value": "7", "topic": "other"}, "number of partitions of topic"),
    ({"aim": "shift-by", "value": "0"}, "Nothing would change"),
    ({"aim": "nonsense", "value": "1"}, "Preview"),
]


@pytest.mark.full
def test_what_cannot_be_reset_is_said(root: str) -> None:
    Log(root).append(record("g", 10, 5))
    client: TestClient = changing(root)
    for form, told in REFUSED:
        page = client.get("/group/reset", params={"id": "g", **form}).text
        assert told in text(page), form
        assert "/group/apply" not in page


@pytest.mark.full
def test_a_reset_of_a_group_that_is_not_there_is_not_found(root: str) -> None:
    client = changing(root)
    for address in ("/group/reset", "/group/undo"):
        assert client.get(address, params={"id": "nobody"}).status_code == 404
