"""One request of a client: whose it is, and how it is carried to the coordinator."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from group_coordinator.coordinator.authorization import host_of
from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.coordinator_link import failed, new_request_id
from group_coordinator.pipeline.gateway.fair_threads import FairThreads, Owner
from group_coordinator.pipeline.gateway.group_listing import GroupListings
from group_coordinator.pipeline.gateway.room import HeldAnswer, Room
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.acls import Acls
    from group_coordinator.pipeline.gateway.brokers import Brokers
    from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink
    from group_coordinator.pipeline.gateway.producing import Producing
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts, Refusals
    from group_coordinator.pipeline.gateway.topics import Topics
    from group_coordinator.pipeline.gateway_settings import GatewaySettings

T = TypeVar("T")
# What works for clients; most of it is Python, which one thread does at a time.
_THREADS = 6
# How long an operator's request may take: request.timeout.ms of Kafka's admin client.
ADMIN_TIMEOUT_MS = 30_000
# How long after that an answer is waited for: what was decided just in time is still written.
_ANSWER_S = 2.0


class TooLate(Failure):
    """Whoever sent a request has given up waiting for what it asks for."""


class Services:
    """What the APIs of a gateway answer from. `brokers` is there once the gateway listens."""

    brokers: Brokers

    def __init__(
        self,
        root: str,
        link: CoordinatorLink,
        topics: Topics,
        producing: Producing,
        acls: Acls,
        refusals: Refusals,
        refused: RefusalCounts,
        cluster_id: str,
        settings: GatewaySettings,
    ) -> None:
        self.root = root
        self.link = link
        self.topics = topics
        self.producing = producing
        self.acls = acls
        self.refusals = refusals
        self.refused = refused
        self.cluster_id = cluster_id
        self.settings = settings
        self.threads = FairThreads(_THREADS, "clients")
        self.groups = GroupListings(root)
        # The requests in flight that are counted.
        self.in_flight = Room(settings.queued_max_requests)
        # The bytes of large requests.
        self.memory = Room(settings.queued_max_request_bytes)

    async def close(self) -> None:
        """End the threads that work for clients."""
        self.threads.close()
        await self.groups.close()


class RequestContext:
    """A request's header and sender; `services` is what it is answered from.

    `held` is the memory of its answer.

    `taken_in` is to be called once nothing that the client sends later can overtake the request.
    The request was sent after `sent_after`, ms of `clock.since_boot_ms`. `listener` is the name of
    the listener by which the client came.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "held",
        "listener",
        "principal",
        "sent_after",
        "services",
        "taken_in",
        "version",
    )
    taken_in: Callable[[], None]
    held: HeldAnswer

    def __init__(
        self,
        services: Services,
        version: int,
        client_id: str | None,
        client_host: str,
        principal: str,
        sent_after: int,
        listener: str,
    ) -> None:
        self.sent_after = sent_after
        self.listener = listener
        self.services = services
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.principal = principal

    @property
    def owner(self) -> Owner:
        """Whom the request is worked on for."""
        return Owner(self.principal, self.client_host)

    def in_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Work in one of the threads that clients share: the loop serves others meanwhile."""
        return self.services.threads.run(self.owner, partial(work, *args))

    def may(self, operation: str, resource_type: str, name: str) -> bool:
        """Whether the client may do something to a resource (`coordinator.authorization`).

        Raises AclsUnknown, by which the connection ends: the client tries again, here or at another
        gateway. An error that says that it may not would end the client.
        """
        self.services.acls.check(self.principal)
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, host_of(self.client_host), operation, resource_type, name
        )

    def may_any(self, operation: str, resource_type: str) -> bool:
        """Whether the client may do something to at least one resource of a type; see `may`."""
        self.services.acls.check(self.principal)
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows_any(
            self.principal, host_of(self.client_host), operation, resource_type
        )

    async def ask(self, event: RequestEvent) -> Response:
        """Have the coordinator decide a request of a group; see `CoordinatorLink.answer`."""
        return await self.services.link.answer(event)

    async def ask_in_time(self, event: RequestEvent, timeout_ms: int) -> Response:
        """Have the coordinator decide an operator's request in time, or answer REQUEST_TIMED_OUT.

        A client that has given up waiting must not see its groups deleted when a coordinator, or
        this gateway, goes on the next day. `pipeline.admin.requesting` says what remains.
        """
        until = self.sent_after + timeout_ms
        left_s = max(0, until - since_boot_ms()) / 1000
        answer = self.services.link.answer(event, until)
        try:
            return await asyncio.wait_for(answer, left_s + _ANSWER_S)
        except TimeoutError:
            return failed(event, ErrorCode.REQUEST_TIMED_OUT, "no coordinator answered in time")

    def check_time(self) -> None:
        """Raise TooLate if a change that an operator asked for is not to be made any more.

        To be called between a look at a table and the commit of what was decided by it. Who stands
        still after that finds the table changed, and looks again.
        """
        late_ms = since_boot_ms() - self.sent_after - ADMIN_TIMEOUT_MS
        if late_ms > 0:
            raise TooLate(f"the request was to be carried out {late_ms} ms earlier")

    def event(self, api: str, group_id: str, body: Any) -> RequestEvent:
        """A request of a group as the coordinator is asked it, under an id of its own."""
        return RequestEvent(
            request_id=new_request_id(),
            group_id=group_id,
            api=api,
            api_version=self.version,
            client_id=self.client_id,
            client_host=self.client_host,
            principal=self.principal,
            **{api: body},
        )
