"""A store that replaces what is to be created is refused: it would lose commits, and say nothing.

A local folder stands for the store, by the same library; `tests/object_store` asks servers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_coordinator.pipeline.delta import store_check
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_check import UnfitStore, check_store
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.node import preflight
from group_coordinator.pipeline.node.preflight import check_start
from group_coordinator.pipeline.tables import store
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import REQUESTS


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch) -> Iterator[None]:
    """Have a local folder checked as a store is."""
    monkeypatch.setattr(store_check, "local_folder", lambda _uri: None)
    check_store.cache_clear()
    yield
    check_store.cache_clear()


@pytest.fixture
def ignored(monkeypatch) -> None:
    """Have the store ignore the condition, as one that does not know its header."""
    monkeypatch.setattr(ObjectStore, "put_absent", ObjectStore.write)


def test_a_store_that_creates_once_is_taken_and_left_as_it_was(tmp_path):
    check_store(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_replaces_is_refused_in_one_line_and_left_as_it_was(tmp_path, ignored):
    with pytest.raises(UnfitStore, match="two writers would overwrite each other's") as refused:
        check_store(str(tmp_path))
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, UsageError)
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_is_lost_is_no_reason(tmp_path, monkeypatch):
    """Of the first PUT the answer is lost; the client repeats it, and is refused by its own."""
    create = ObjectStore.put_absent

    def repeated(folder: ObjectStore, path: str, content: bytes) -> None:
        create(folder, path, content)
        create(folder, path, content)

    monkeypatch.setattr(ObjectStore, "put_absent", repeated)
    check_store(str(tmp_path))


def test_no_table_is_created_where_it_would_not_be_safe(tmp_path, ignored):
    with pytest.raises(UnfitStore):
        ensure_table(str(tmp_path), REQUESTS)
    assert list(tmp_path.iterdir()) == []


def test_a_coordinator_is_refused_such_a_root_before_spark_starts(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(store_check, "check_store", asked.append)
    monkeypatch.setattr(preflight, "check_release", lambda _root: None)
    check_start("s3a://bucket/groups/")
    assert asked == ["s3a://bucket/groups"]


def test_a_table_that_is_there_costs_no_check(tmp_path, monkeypatch):
    ensure_table(str(tmp_path), REQUESTS)
    monkeypatch.setattr(store, "check_store", lambda uri: pytest.fail(f"{uri} was checked"))
    ensure_table(str(tmp_path), REQUESTS)
