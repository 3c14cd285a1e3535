"""What one client has a gateway do keeps neither the gateway's own work waiting nor others'."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from group_coordinator.coordinator.authorization import Authorizer
from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.gateway import polling
from group_coordinator.pipeline.gateway.acl_cache import AclCache
from group_coordinator.pipeline.gateway.apis.groups import LIST_GROUPS
from group_coordinator.pipeline.gateway.brokers import LEASE_S
from group_coordinator.pipeline.gateway.fair_threads import FairThreadPool, Owner
from group_coordinator.pipeline.gateway.polling import GroupEntry, GroupListing
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs, Topics
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.acl_table import AclWatcher, add_acls
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.reading import reader
from tests.clocks import AheadClocks
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import gateway
from tests.waiting import LIMIT_S, wait_until

# More than there are threads for clients.
FLOOD = 20


class Reads:
    """Reads of the groups, which last until the test lets them go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = threading.Event()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    reads = Reads()
    query = Catalog.query

    def held(self: Catalog, *arguments: Any) -> Any:
        if "FROM groups" in arguments[0]:
            reads.begun += 1
            assert reads.go_on.wait(LIMIT_S)
        return query(self, *arguments)

    monkeypatch.setattr(Catalog, "query", held)
    monkeypatch.setattr(polling, "_PAUSE", 0.0)
    yield reads
    reads.go_on.set()


def list_groups() -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=[], types_filter=[])


@contextmanager
def flooded(broker: Any, reads: Reads) -> Iterator[list[Client]]:
    """Have many connections ask for the groups while the block runs."""
    with ExitStack() as clients:
        flood = [clients.enter_context(connected(broker)) for _ in range(FLOOD)]
        for client in flood:
            client.send(list_groups(), 5)
        wait_until("the groups are read", lambda: reads.begun)
        try:
            yield flood
        finally:
            reads.go_on.set()


def test_others_are_answered_while_many_ask_for_the_groups(root: str, reads: Reads) -> None:
    """Metadata is answered in a thread as well."""
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with gateway(root) as broker, flooded(broker, reads), connected(broker) as client:
        assert client.ask(asked, MetadataResponse, 8).brokers


def test_acls_are_followed_while_many_ask_for_the_groups(root: str, reads: Reads) -> None:
    """Ten seconds without a look, and a gateway closes everybody's connections."""
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    asked = partial(FindCoordinatorRequest, key="g", key_type=0)
    group = ("GROUP", "g", "LITERAL", "User:ANONYMOUS", "*")
    # The first ACL of a root makes the table, and a gateway that finds no row in it yet closes
    # connections.
    add_acls(root, [AclBinding(*group, "READ", "ALLOW")])
    with gateway(root) as broker, flooded(broker, reads), connected(broker) as client:
        assert client.ask(asked(), FindCoordinatorResponse, 2).error_code == 0
        add_acls(root, [AclBinding(*group, "ALL", "DENY")])
        wait_until(
            "the gateway knows the ACL",
            lambda: client.ask(asked(), FindCoordinatorResponse, 2).error_code == denied,
        )


def test_the_groups_are_read_once_for_all_who_ask_meanwhile(root: str, reads: Reads) -> None:
    """The first ones to ask have one reading, and all that asked during it have another one."""
    with gateway(root) as broker, connected(broker) as first:
        first.send(list_groups(), 5)
        wait_until("the groups are read", lambda: reads.begun)
        with flooded(broker, reads) as flood:
            # Of what came before the requests of another connection all is read by then.
            with connected(broker) as last:
                for _ in range(2):
                    last.ask(MetadataRequest(topics=[]), MetadataResponse, 8)
            reads.go_on.set()
            for client in (first, *flood):
                _, answer = client.receive(ListGroupsResponse, 5)
                assert answer.error_code == 0
    assert reads.begun == 2


def test_a_response_that_is_encoded_already_needs_no_thread(
    root: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads of a client encode the groups once, and not a frame for each connection."""
    works: list[str] = []
    run = FairThreadPool.run

    def noted(pool: FairThreadPool, owner: Owner, work: Any) -> Any:
        works.append(getattr(work, "func", work).__name__)
        return run(pool, owner, work)

    monkeypatch.setattr(FairThreadPool, "run", noted)
    with gateway(root) as broker, flooded(broker, reads) as flood:
        reads.go_on.set()
        for client in flood:
            assert client.receive(ListGroupsResponse, 5)[1].error_code == 0
    assert "_list_body" in works
    assert "_encode" not in works


def test_acls_are_known_since_the_beginning_of_a_look(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes while a look lasts may be older than its end, and not seen."""
    known = AclCache(root, GroupCoordinatorConfig())
    poll = AclWatcher.poll
    late = AheadClocks()

    def slow(watcher: AclWatcher) -> Any:
        found = poll(watcher)
        late.monotonic_ahead_s = LEASE_S + 1
        return found

    monkeypatch.setattr(AclWatcher, "poll", slow)
    with clock.use(late):
        asyncio.run(known.poll())
        assert not known.is_known


def test_acls_are_looked_at_in_a_thread_of_their_own(root: str) -> None:
    """Threads that all of a process share may all be busy."""
    known = AclCache(root, GroupCoordinatorConfig())
    go_on = threading.Event()

    async def look() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as shared:
            loop.set_default_executor(shared)
            loop.run_in_executor(None, go_on.wait, LIMIT_S)
            try:
                await asyncio.wait_for(known.poll(), LIMIT_S / 2)
            finally:
                go_on.set()

    asyncio.run(look())


def test_the_catalogue_is_looked_at_before_clients_read_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them wait: a fetch may read for long."""
    begun: list[str] = []
    go_on = threading.Event()

    def first(_logs: TopicLogs) -> None:
        assert go_on.wait(LIMIT_S)

    async def story() -> None:
        topics = Topics(root)
        monkeypatch.setattr(TopicLogs, "poll", lambda _: begun.append("look") or [])
        reads = [topics.read_logs(first, Owner("User:eve", "/10.0.0.1"))]
        for number in range(FLOOD):
            owner = Owner(f"User:{number}", "/10.0.0.1")
            reads.append(topics.read_logs(lambda _: begun.append("read"), owner))
        look = asyncio.ensure_future(topics.poll())
        # The look has begun, and waits for the thread.
        for _ in range(10):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(look, *reads)
        await topics.close()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))
    assert begun == ["look", *["read"] * FLOOD]


def test_each_client_is_told_of_the_groups_that_it_may_describe() -> None:
    """One reading serves them all, and an answer is made for each principal."""
    listing = GroupListing(
        [GroupEntry(name, "consumer", "Empty", "classic") for name in ("a", "b")]
    )
    acls = [
        AclBinding("GROUP", name, "LITERAL", f"User:{name}", "*", "DESCRIBE", "ALLOW")
        for name in "ab"
    ]
    made: list[str] = []

    async def read() -> GroupListing:
        return listing

    async def told() -> list[bytes]:
        services: Any = SimpleNamespace(
            groups=SimpleNamespace(read=read),
            threads=FairThreadPool(2, "clients"),
            acls=SimpleNamespace(check=made.append, authorizer=Authorizer(acls)),
        )
        request = SimpleNamespace(states_filter=None, types_filter=None)
        answer: Any = LIST_GROUPS.handler
        calls = [
            RequestContext(services, 5, "c", "/10.0.0.1", f"User:{name}", 0, "L") for name in "abab"
        ]
        found = await asyncio.gather(*(answer(call, request) for call in calls))
        services.threads.close()
        return found

    answers = [reader("ListGroupsResponse", 5)(body, 0) for body in asyncio.run(told())]
    assert [[each.group_id for each in answer.groups] for answer in answers] == [
        ["a"],
        ["b"],
        ["a"],
        ["b"],
    ]
    # The cluster and two groups, once for each of the two.
    assert sorted(made) == ["User:a"] * 3 + ["User:b"] * 3
