"""The table of ACLs: added, removed, followed, shown, and in one order whoever changes it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import followed, identity
from group_coordinator.pipeline.delta.identity import TableAway, TableReplacedError
from group_coordinator.pipeline.delta.table import newest_version
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.acl_cache import AclCache, AclsUnknown
from group_coordinator.pipeline.gateway.brokers import LEASE_S
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables import acl_table as module
from group_coordinator.pipeline.tables.acl_table import (
    AclWatcher,
    InvalidAcl,
    add_acls,
    read_acls,
    remove_acls,
)
from group_coordinator.pipeline.tables.store import TableMissing, ensure_table, table_uri
from group_coordinator.schemas.acls import AclBinding, AclFilter
from group_coordinator.schemas.tables import ACLS, COORDINATORS
from tests.clocks import AheadClocks
from tests.support.failing_reads import TOO_MANY_FILES, failing_reads

ONE = AclBinding("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")
TWO = AclBinding("GROUP", "g-", "PREFIXED", "User:bob", "*", "READ", "ALLOW")


def test_the_first_acl_makes_the_table(root: str) -> None:
    watcher = AclWatcher(root)
    assert watcher.poll() is None
    assert remove_acls(root, [AclFilter()]) == []
    assert read_acls(root) is None
    assert add_acls(root, [ONE, TWO, ONE], by="User:admin") == [ONE, TWO]
    assert add_acls(root, [TWO]) == []
    assert watcher.poll() == read_acls(root) == (TWO, ONE)
    assert watcher.poll() is watcher.poll()


def test_when_all_were_removed_there_are_none_but_they_are_obeyed(root: str) -> None:
    add_acls(root, [ONE, TWO])
    watcher = AclWatcher(root)
    watcher.poll()
    assert remove_acls(root, [AclFilter(resource_type="GROUP")]) == [TWO]
    assert watcher.poll() == (ONE,)
    assert remove_acls(root, [AclFilter()]) == [ONE]
    assert watcher.poll() == read_acls(root) == ()
    add_acls(root, [ONE])
    assert watcher.poll() == read_acls(root) == (ONE,)


def test_an_acl_that_cannot_be_changes_nothing(root: str) -> None:
    with pytest.raises(InvalidAcl, match="no colon"):
        add_acls(root, [ONE, AclBinding(*("TOPIC", "t", "LITERAL", "bob", "*", "READ", "ALLOW"))])
    assert read_acls(root) is None


def test_two_changes_at_once_are_one_after_the_other(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_acls(root, [TWO])
    read = module.read_table
    others = [lambda: add_acls(root, [ONE])]

    def read_too_early(*table: object) -> object:
        found = read(*table)
        if others:
            others.pop()()
        return found

    monkeypatch.setattr(module, "read_table", read_too_early)
    assert add_acls(root, [ONE]) == [], "it was added meanwhile"
    assert read_acls(root) == (TWO, ONE)


def test_a_change_that_is_read_twice_counts_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_acls(root, [TWO])
    follow = followed.follow

    def follow_and_change(uri: str, columns: list[str], refuses_removals: bool) -> object:
        tail = follow(uri, columns, refuses_removals)
        monkeypatch.setattr(followed, "follow", follow)
        add_acls(root, [ONE])
        remove_acls(root, [AclFilter(resource_type="TOPIC")])
        return tail

    monkeypatch.setattr(followed, "follow", follow_and_change)
    watcher = AclWatcher(root)
    assert [watcher.poll(), watcher.poll()] == [(TWO,), (TWO,)]


def test_a_gateway_goes_on_for_its_lease_by_the_acls_that_it_has(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_acls(root, [ONE])
    known = AclCache(root, GroupCoordinatorConfig(super_users="User:admin"))
    question = ("User:alice", "h", "READ", "TOPIC", "orders")

    def fail(_: AclWatcher) -> None:
        raise OSError("the store is away")

    async def follow(seconds: float) -> bool:
        following = asyncio.ensure_future(known.follow())
        await asyncio.sleep(seconds)
        following.cancel()
        assert known.authorizer is not None
        return known.authorizer.allows(*question)

    monkeypatch.setattr("group_coordinator.pipeline.gateway.acl_cache._POLL_EVERY_S", 0.001)
    with monkeypatch.context() as broken:
        broken.setattr(AclWatcher, "poll", fail)
        assert asyncio.run(follow(0.05))
        assert "the store is away" in caplog.text
        with pytest.raises(OSError, match="away"):
            AclCache(root, GroupCoordinatorConfig())
        known.check("User:alice")
        with clock.use(AheadClocks(LEASE_S + 1, LEASE_S + 1)):
            assert not known.is_known
            known.check("User:admin")
            with pytest.raises(AclsUnknown, match=r"ACLs could not be read for 1[12] s"):
                known.check("User:alice")
    remove_acls(root, [AclFilter()])
    asyncio.run(known.poll())
    known.check("User:alice")
    assert known.acls == ()
    assert known.authorizer is not None
    assert not known.authorizer.allows(*question)


def test_a_first_acl_that_cannot_be_read_lets_nobody_in(root: str) -> None:
    """Before it everything is allowed to everybody."""
    known = AclCache(root, GroupCoordinatorConfig(super_users="User:admin"))
    known.check("User:bob")
    add_acls(root, [ONE])
    with failing_reads(root, 1, TOO_MANY_FILES), pytest.raises(OSError, match="Too many open"):
        asyncio.run(known.poll())
    known.check("User:admin")
    with pytest.raises(AclsUnknown, match="only super users are authorized"):
        known.check("User:bob")
    asyncio.run(known.poll())
    known.check("User:bob")
    assert known.authorizer is not None
    assert not known.authorizer.allows("User:bob", "h", "READ", "TOPIC", "orders")


def test_acls_whose_table_is_away_allow_nothing(root: str) -> None:
    """Whoever starts then would take it for a root that never had any."""
    super_users = GroupCoordinatorConfig(super_users="User:admin")
    add_acls(root, [ONE])
    folder, away = Path(root) / "acls", Path(root) / "away"
    folder.rename(away)
    watcher = AclWatcher(root)
    for asked in (
        partial(read_acls, root),
        partial(AclCache, root, super_users),
        partial(remove_acls, root, [AclFilter()]),
        partial(add_acls, root, [TWO]),
        watcher.poll,
        watcher.poll,
    ):
        with pytest.raises(TableMissing, match="restore it"):
            asked()
    assert not folder.exists()
    away.rename(folder)
    assert watcher.poll() == AclCache(root, super_users).acls == read_acls(root) == (ONE,)


@pytest.fixture
def compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)


@pytest.mark.usefixtures("compared_at_once")
def test_acls_made_anew_are_unknown_until_they_are_read(root: str) -> None:
    add_acls(root, [ONE])
    known = AclCache(root, GroupCoordinatorConfig())
    shutil.rmtree(Path(root) / "acls")
    add_acls(root, [TWO], anew=True)
    with pytest.raises(TableReplacedError):
        asyncio.run(known.poll())
    with pytest.raises(AclsUnknown):
        known.check("User:alice")
    asyncio.run(known.poll())
    known.check("User:alice")
    assert known.acls == (TWO,)


@pytest.mark.usefixtures("compared_at_once")
def test_acls_made_anew_without_rows_are_unknown_and_not_none(root: str) -> None:
    """`add_acls` makes the table before its first row; clients take a denial for final."""
    add_acls(root, [ONE])
    known, watcher = AclCache(root, GroupCoordinatorConfig()), AclWatcher(root)
    shutil.rmtree(Path(root) / "acls")
    ensure_table(root, ACLS)
    for _ in range(3):
        with pytest.raises(Failure):
            asyncio.run(known.poll())
        with pytest.raises(AclsUnknown):
            known.check("User:alice")
        with pytest.raises(Failure, match="has no rows yet"):
            watcher.poll()
    with pytest.raises(Failure, match="`group-coordinator acls add`"):
        read_acls(root)
    add_acls(root, [TWO])
    asyncio.run(known.poll())
    assert known.acls == watcher.poll() == (TWO,)


@pytest.mark.usefixtures("compared_at_once")
def test_a_look_at_acls_that_were_renamed_away_has_failed(root: str) -> None:
    add_acls(root, [ONE])
    known = AclCache(root, GroupCoordinatorConfig())
    folder = Path(root) / "acls"
    away = folder.rename(Path(root) / "away")
    with pytest.raises(TableAway, match="restore it"):
        asyncio.run(known.poll())
    known.check("User:alice")
    with clock.use(AheadClocks(LEASE_S + 1, LEASE_S + 1)):
        with pytest.raises(TableAway):
            asyncio.run(known.poll())
        with pytest.raises(AclsUnknown):
            known.check("User:alice")
        away.rename(folder)
        asyncio.run(known.poll())
        known.check("User:alice")


def restore(uri: str) -> None:
    DeltaTable(uri).restore(1)


def delete_second(uri: str) -> None:
    DeltaTable(uri).delete("number = 1")


def keep_first(uri: str) -> None:
    rows = DeltaTable(uri).to_pyarrow_table(filters=[("number", "=", 0)])
    write_deltalake(uri, rows, mode="overwrite")


@pytest.mark.parametrize("remove", [restore, delete_second, keep_first])
def test_acls_are_those_that_are_left_when_rows_are_removed(
    root: str, remove: Callable[[str], None]
) -> None:
    add_acls(root, [ONE])
    add_acls(root, [TWO])
    watcher = AclWatcher(root)
    assert watcher.poll() == read_acls(root)
    remove(table_uri(root, ACLS))
    assert watcher.poll() == (ONE,) == read_acls(root)
    add_acls(root, [TWO])
    assert watcher.poll() == read_acls(root) == tuple(sorted([ONE, TWO]))


def test_acls_that_are_lost_are_made_anew_where_that_is_asked(root: str) -> None:
    add_acls(root, [ONE])
    shutil.rmtree(Path(root) / "acls")
    assert add_acls(root, [TWO], anew=True) == [TWO]
    assert read_acls(root) == (TWO,)


def test_that_there_are_acls_is_said_once(root: str) -> None:
    add_acls(root, [ONE])
    before = newest_version(table_uri(root, COORDINATORS))
    add_acls(root, [TWO])
    assert newest_version(table_uri(root, COORDINATORS)) == before


def test_sql_shows_the_acls_in_force(root: str) -> None:
    add_acls(root, [ONE, TWO], by="User:admin")
    remove_acls(root, [AclFilter(principal="User:bob")])
    catalog = Catalog(root)
    found = catalog.query("SELECT resource_name, principal, added_by FROM acls").rows
    assert found == [("orders", "User:alice", "User:admin")]
    assert catalog.query("SELECT count(*) FROM acl_changes").rows == [(3,)]
