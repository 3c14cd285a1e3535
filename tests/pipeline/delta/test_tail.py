"""A tail sees each appended row once, and no row that was only moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from pipeline.delta.local_appender import LocalAppender
from pipeline.delta.tail import Tail, follow
from pipeline.tables.store import table_uri
from schemas.tables import RESPONSES, to_arrow
from tests.pipeline.rows import response


@pytest.fixture
def append(root):
    appender = LocalAppender(Path(table_uri(root, RESPONSES)))
    return lambda *ids: appender.append(to_arrow(RESPONSES, [response(each) for each in ids]))


@pytest.fixture(params=["local", "remote"])
def open_tail(request, root):
    def tail():
        if request.param == "local":
            return follow(table_uri(root, RESPONSES), ["request_id"])
        uri = table_uri(root, RESPONSES)
        files = PyFileSystem(DeltaStorageHandler(uri))
        return Tail(files, DeltaTable(uri).version(), ["request_id"])

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


def test_a_compaction_brings_nothing_new(root, append, open_tail):
    tail = open_tail()
    append("a")
    append("b")
    assert seen(tail) == ["a", "b"]
    DeltaTable(f"{root}/responses").optimize.compact()
    append("c")
    assert seen(tail) == ["c"]
