"""A tail sees each appended row once, and no row that was only moved."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from pipeline.commit import LocalAppender
from pipeline.tail import LocalTail, RemoteTail, follow
from schemas.tables import RESPONSES, to_arrow
from tests.pipeline.rows import response


@pytest.fixture
def append(root):
    appender = LocalAppender(follow(root, RESPONSES, [])._folder)
    return lambda *ids: appender.append(to_arrow(RESPONSES, [response(each) for each in ids]))


@pytest.fixture(params=["local", "remote"])
def open_tail(request, root):
    def tail():
        if request.param == "local":
            return follow(root, RESPONSES, ["request_id"])
        return RemoteTail(f"{root}/responses", ["request_id"])

    return tail


def seen(tail) -> list[str] | None:
    found = tail.poll()
    return None if found is None else sorted(found.column("request_id").to_pylist())


def test_it_begins_at_the_present_end(append, open_tail):
    append("old")
    tail = open_tail()
    assert seen(tail) is None
    append("a", "b")
    append("c")
    assert seen(tail) == ["a", "b", "c"]
    assert seen(tail) is None


def test_a_local_root_is_followed_by_its_commits(root):
    assert isinstance(follow(root, RESPONSES, []), LocalTail)


def test_a_compaction_brings_nothing_new(root, append):
    tail = follow(root, RESPONSES, ["request_id"])
    append("a")
    append("b")
    assert seen(tail) == ["a", "b"]
    DeltaTable(f"{root}/responses").optimize.compact()
    append("c")
    assert seen(tail) == ["c"]
