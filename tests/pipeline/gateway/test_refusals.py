"""What ACLs forbid is refused by the gateway, without a row; each group named takes room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kafka.protocol.consumer.group import OffsetFetchRequest

from group_coordinator.coordinator.authorization import Authorizer
from group_coordinator.pipeline.gateway import request_context
from group_coordinator.pipeline.gateway.acl_cache import AclCache
from group_coordinator.pipeline.gateway.apis import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    OFFSET_FETCH,
)
from group_coordinator.pipeline.gateway.fair_threads import FairThreadPool
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.gateway.refusal_metrics import RefusalMetrics
from group_coordinator.pipeline.gateway.refusals import RefusalCounts, Refusals
from group_coordinator.pipeline.gateway.request_context import RequestContext, Services
from group_coordinator.schemas import messages
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest
from tests.pipeline.gateway.test_coordinator_link import BOOTED, DECIDED, Lost, link_of
from tests.waiting import LIMIT_S

DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
ALICE, EVE = "User:alice", "User:eve"
MANY = 2_000


def acl(principal: str, operation: str, permission: str = "ALLOW") -> AclBinding:
    return AclBinding("GROUP", "alices-", "PREFIXED", principal, "*", operation, permission)


class Gateway:
    """The groups' side of a gateway, whose coordinator is `client`."""

    def __init__(self, *acls: AclBinding, is_known: bool = True, room: int = 10_000) -> None:
        authorizer = Authorizer(acls) if acls else None
        known = SimpleNamespace(is_known=is_known, authorizer=authorizer)
        self.client = Lost()
        self.refused = RefusalCounts()
        self.refusals = Refusals(cast(AclCache, known), self.refused)
        self.link = link_of(self.client, self.refusals.refusal_of)
        self.services = SimpleNamespace(
            link=self.link,
            refusals=self.refusals,
            in_flight=MemoryPool(room),
            threads=FairThreadPool(2, "clients"),
            settings=SimpleNamespace(queued_max_requests=room),
        )

    def call(self, principal: str) -> RequestContext:
        return RequestContext(
            cast(Services, self.services), 8, "c", "/10.0.0.1", principal, BOOTED, "L"
        )

    async def answered(self, api: Any, principal: str, request: Any) -> Any:
        return await asyncio.wait_for(api.handler(self.call(principal), request), LIMIT_S)


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def names(count: int) -> list[str]:
    return [f"alices-{number}" for number in range(count)]


# --- refused, without a row -----------------------------------------------------------------------


def described(count: int) -> Any:
    return DescribeGroupsRequest(groups=names(count), include_authorized_operations=False)


@pytest.mark.parametrize(
    ("api", "request_", "codes"),
    [
        (
            DESCRIBE_GROUPS,
            described(MANY),
            lambda found: [each.error_code for each in found.groups],
        ),
        (
            DELETE_GROUPS,
            DeleteGroupsRequest(groups_names=names(MANY)),
            lambda found: [each.error_code for each in found.results],
        ),
        (
            OFFSET_FETCH,
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
                    for name in names(MANY)
                ]
            ),
            lambda found: [each.error_code for each in found.groups],
        ),
    ],
    ids=["describe", "delete", "fetch"],
)
def test_groups_that_a_client_may_not_name_leave_no_rows(
    api: Any, request_: Any, codes: Callable[[Any], list[int]]
) -> None:
    """Each was a row, or two, and all heartbeats waited for them: 200,000 stopped them for 20 s."""

    async def story() -> None:
        gateway = Gateway(acl(ALICE, "ALL"))
        found = await gateway.answered(api, EVE, request_)
        assert gateway.client.waiting == []
        assert codes(found) == [DENIED] * MANY
        assert sum(gateway.refused.counts().values()) == MANY

    run(story)


def event(api: str, body: Any, principal: str = EVE) -> messages.RequestEvent:
    call = Gateway().call(principal)
    return call.event(api, "alices-1", body)


COMMIT = messages.OffsetCommitRequest(member_id="m", generation_id=1, topics=())


def test_nor_do_requests_of_one_group() -> None:
    async def story() -> list[messages.Response]:
        gateway, found = Gateway(acl(ALICE, "ALL")), list[messages.Response]()
        heard: list[str] = []
        beat = event("heartbeat", HeartbeatRequest(1, "m"))
        gateway.link.send(beat, found.append, lambda: heard.append("taken in"))
        gateway.link.send(event("offset_commit", COMMIT), found.append, until=BOOTED + 9)
        gateway.link.send(beat, found.append).cancel()
        # As every answer, after the call that asked for it.
        assert (found, heard) == ([], ["taken in"])
        await asyncio.sleep(0)
        assert gateway.client.waiting == []
        return found

    found = run(story)
    assert [(each.api, each.error_code) for each in found] == [
        ("heartbeat", DENIED),
        ("offset_commit", DENIED),
    ]
    assert found[0].error_message == "User:eve has no READ on group 'alices-1'"


def test_a_refused_join_is_told_no_member_id() -> None:
    """As Kafka's JoinGroupRequest.getErrorResponse does."""
    join = messages.JoinGroupRequest(
        session_timeout_ms=6_000, member_id="known", protocol_type="consumer", protocols=()
    )

    async def story() -> None:
        gateway = Gateway(acl(ALICE, "ALL"))
        refused = gateway.refusals.refusal_of(event("join_group", join))
        assert refused is not None
        handler: Any = JOIN_GROUP.handler
        request = SimpleNamespace(member_id="known")
        assert handler.to_response(gateway.call(EVE), request, refused).member_id == ""

    run(story)


@pytest.mark.parametrize(
    ("gateway", "principal"),
    [
        (Gateway, ALICE),
        (lambda: Gateway(acl(ALICE, "ALL")), ALICE),
        (lambda: Gateway(acl(ALICE, "ALL"), is_known=False), EVE),
    ],
    ids=["no ACLs", "allowed", "not known"],
)
def test_what_is_not_known_to_be_forbidden_is_the_coordinators(
    gateway: Callable[[], Gateway], principal: str
) -> None:
    async def story() -> None:
        running = gateway()
        beat = event("heartbeat", HeartbeatRequest(1, "m"), principal)
        running.link.send(beat, lambda _: None)
        assert len(running.client.waiting) == 1
        assert not running.refused.counts()

    run(story)


def test_who_may_commit_but_not_describe_commits() -> None:
    """The question for the coordinator's time is no question of the client's."""

    async def story() -> None:
        gateway = Gateway(acl(ALICE, "READ"), acl(ALICE, "DESCRIBE", "DENY"))
        commit = event("offset_commit", COMMIT, ALICE)
        gateway.link.send(commit, lambda _: None, until=BOOTED + 9)
        assert (await gateway.client.answer(DECIDED)).api == "find_coordinator"
        assert (await gateway.client.answer(DECIDED)).api == "offset_commit"

    run(story)


# --- what is told ---------------------------------------------------------------------------------


def test_the_log_has_one_line_of_all_that_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    body = messages.DescribeGroupsRequest()

    async def story() -> None:
        refusals = Gateway(acl(ALICE, "ALL")).refusals
        for number in range(30):
            call = Gateway().call(f"User:{'x' * 1_000}{number}")
            refusals.refusal_of(call.event("describe_groups", "\n" * 5_000, body))
        for _ in range(1_200):
            refusals.refusal_of(event("heartbeat", HeartbeatRequest(1, "m")))
        refusals.log_refused()
        refusals.log_refused()

    run(story)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "refused by ACLs: 1,200 heartbeat of 'User:eve' (the first of group 'alices-1'); "
    )
    assert line.endswith("; 21 of others; since the start: 30 describe_groups, 1,200 heartbeat")
    assert len(line) < 4_000
    assert "\n" not in line


def test_the_rest_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        refusals = Gateway(acl(ALICE, "ALL")).refusals
        telling = asyncio.ensure_future(refusals.follow())
        await asyncio.sleep(0)
        refusals.refusal_of(event("heartbeat", HeartbeatRequest(1, "m")))
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    run(story)
    assert len(caplog.records) == 1


def test_prometheus_is_told_how_many_were_refused_by_api_and_error() -> None:
    """They leave no rows, so that nobody else can count them."""

    async def story() -> RefusalCounts:
        gateway = Gateway(acl(ALICE, "ALL"))
        for number in range(3):
            call = Gateway().call(f"User:{number}")
            gateway.refusals.refusal_of(
                call.event("heartbeat", f"alices-{number}", HeartbeatRequest(1, "m"))
            )
        gateway.refusals.refusal_of(event("offset_commit", COMMIT))
        gateway.refusals.refusal_of(event("offset_commit", COMMIT, ALICE))
        return gateway.refused

    (family,) = RefusalMetrics(run(story)).collect()
    # However many names strangers make up, there are as many series as APIs.
    assert [(each.name, each.labels, each.value) for each in family.samples] == [
        (
            "group_coordinator_gateway_refusals_total",
            {"api": api, "error": "GROUP_AUTHORIZATION_FAILED"},
            count,
        )
        for api, count in (("heartbeat", 3), ("offset_commit", 1))
    ]


# --- room -----------------------------------------------------------------------------------------


def _nothing() -> None:
    pass


def test_each_group_that_is_named_takes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request asked for all its groups at once, whatever queued.max.requests was."""
    monkeypatch.setattr(request_context, "_MOST_AT_ONCE", 3)

    async def story() -> None:
        gateway = Gateway(room=4)
        room = gateway.services.in_flight
        described_all = asyncio.ensure_future(
            gateway.answered(DESCRIBE_GROUPS, ALICE, described(7))
        )
        seen = []
        while not described_all.done():
            await asyncio.sleep(0)
            if waiting := [*gateway.client.waiting]:
                seen.append(len(waiting))
                # The room is what is left of it.
                left = 4 - len(waiting)
                assert room.try_acquire(left, _nothing)
                room.release(left)
                assert not room.try_acquire(left + 1, _nothing)
                room.withdraw(_nothing)
                for _ in waiting:
                    await gateway.client.answer(DECIDED)
        assert [each.group_id for each in described_all.result().groups] == names(7)
        assert seen == [3, 3, 1]
        assert room.try_acquire(4, _nothing)

    run(story)


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_request_whose_client_has_left_gives_its_room_back(is_granted: bool) -> None:
    async def story() -> None:
        gateway = Gateway(room=4)
        room = gateway.services.in_flight
        assert room.try_acquire(4, _nothing)
        handler: Any = DESCRIBE_GROUPS.handler
        waits = asyncio.ensure_future(handler(gateway.call(ALICE), described(2)))
        await asyncio.sleep(0)
        if is_granted:
            room.release(4)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        if not is_granted:
            room.release(4)
        assert gateway.client.waiting == []
        assert room.try_acquire(4, _nothing)

    run(story)
