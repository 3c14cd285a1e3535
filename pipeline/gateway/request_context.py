"""The context of a client's request: its sender, its header, and the services for its API.

If a request names many groups, each group becomes a request to the coordinator (`send_each_group`).
Each counts as a request in flight. At most `_MOST_AT_ONCE` are sent at a time: the coordinator
decides all waiting requests in one micro-batch, so more would delay the heartbeats in it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from group_coordinator.coordinator.authorization import host_of
from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.coordinator_link import failed, new_request_id
from group_coordinator.pipeline.gateway.fair_threads import FairThreadPool, Owner
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool, ResponseMemory
from group_coordinator.pipeline.gateway.polling import GroupListings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from group_coordinator.pipeline.gateway.acl_cache import AclCache
    from group_coordinator.pipeline.gateway.brokers import Brokers
    from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink
    from group_coordinator.pipeline.gateway.log_writers import LogWriters
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts, Refusals
    from group_coordinator.pipeline.gateway.topic_logs import Topics
    from group_coordinator.pipeline.gateway_settings import GatewaySettings

T = TypeVar("T")
# The threads that work for clients. Most of the work is Python, which runs in one thread at a time.
_THREADS = 6
# The deadline of an operator's request, ms: request.timeout.ms of Kafka's admin client.
ADMIN_TIMEOUT_MS = 30_000
# How long a response is awaited after the deadline, s, because one that was decided just in time
# must still be written.
_WRITE_S = 2.0


class DeadlinePassed(Failure):
    """Error for a request with a deadline that has passed, so that its client has given up."""


class Services:
    """The services that the APIs of a gateway use. `brokers` is set before the gateway listens."""

    brokers: Brokers

    def __init__(
        self,
        root: str,
        link: CoordinatorLink,
        topics: Topics,
        log_writers: LogWriters,
        acls: AclCache,
        refusals: Refusals,
        refused: RefusalCounts,
        cluster_id: str,
        settings: GatewaySettings,
    ) -> None:
        self.root = root
        self.link = link
        self.topics = topics
        self.log_writers = log_writers
        self.acls = acls
        self.refusals = refusals
        self.refused = refused
        self.cluster_id = cluster_id
        self.settings = settings
        self.threads = FairThreadPool(_THREADS, "clients")
        self.groups = GroupListings(root)
        # The limit of requests in flight. Parked requests are not counted.
        self.in_flight = MemoryPool(settings.queued_max_requests)
        # The memory of large requests and of responses, bytes.
        self.memory = MemoryPool(settings.queued_max_request_bytes)

    async def close(self) -> None:
        """End the threads that run work of clients."""
        self.threads.close()
        await self.groups.close()


class RequestContext:
    """The header and sender of a request, and the `services` for its API.

    `response_memory` counts the memory of its response. The API calls `on_queued` once no later
    request of the client can overtake this one. The request was sent after `sent_after`, ms of
    `clock.since_boot_ms`. `listener` is the name of the listener that accepted the connection.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "listener",
        "on_queued",
        "principal",
        "response_memory",
        "sent_after",
        "services",
        "version",
    )
    on_queued: Callable[[], None]
    response_memory: ResponseMemory

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
        """The client to which the thread pool counts the work of this request."""
        return Owner(self.principal, self.client_host)

    def in_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run work in a thread of the pool that clients share, outside the event loop."""
        return self.services.threads.run(self.owner, partial(work, *args))

    def authorize(self, operation: str, resource_type: str, name: str) -> bool:
        """Return whether the ACLs allow an operation on a resource.

        Raises AclsUnknown, which closes the connection: the client retries, here or at another
        gateway. An authorization error would be final.
        """
        self.services.acls.check(self.principal)
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, host_of(self.client_host), operation, resource_type, name
        )

    def authorize_by_resource_type(self, operation: str, resource_type: str) -> bool:
        """Return whether the ACLs allow an operation on any resource of a type; see `authorize`."""
        self.services.acls.check(self.principal)
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows_any(
            self.principal, host_of(self.client_host), operation, resource_type
        )

    async def send(self, event: RequestEvent) -> Response:
        """Return the coordinator's response to a group request."""
        return await self.services.link.send_and_wait(event)

    async def send_within(self, event: RequestEvent, timeout_ms: int) -> Response:
        """Return the response to an operator's request; REQUEST_TIMED_OUT after the deadline.

        The deadline is `timeout_ms` after the request was sent. Without it, a coordinator or
        gateway that resumes the next day could delete groups, long after the client has given up
        (`pipeline.admin.deadline_requests`).
        """
        until = self.sent_after + timeout_ms
        left_s = max(0, until - since_boot_ms()) / 1000
        response = self.services.link.send_and_wait(event, until)
        try:
            return await asyncio.wait_for(response, left_s + _WRITE_S)
        except TimeoutError:
            return failed(event, ErrorCode.REQUEST_TIMED_OUT, "no coordinator answered in time")

    def check_deadline(self) -> None:
        """Raise DeadlinePassed if the deadline of an operator's change has passed.

        Call it between the read of a table and the commit that depends on it. If the table changes
        later, the commit conflicts, and the table is read again.
        """
        late_ms = since_boot_ms() - self.sent_after - ADMIN_TIMEOUT_MS
        if late_ms > 0:
            raise DeadlinePassed(f"the request was to be carried out {late_ms} ms earlier")

    def event(self, api: str, group_id: str, body: Any) -> RequestEvent:
        """Return the coordinator's request event for a group request, with a new request id."""
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


# --- requests that name many groups ---------------------------------------------------------------

# The limit of groups of a request that are in flight at a time.
_MOST_AT_ONCE = 1_000
# More groups than these are processed in a thread, so that the event loop serves other clients.
_FEW = 100


async def send_each_group(
    call: RequestContext,
    api: str,
    requests: Sequence[tuple[str, Any]],
    send: Callable[[RequestEvent], Awaitable[Response]],
    respond: Callable[[list[Response]], T],
) -> T:
    """Return the response to a client's request. `requests` has the id and body of each group.

    `send` sends one group's request to the coordinator. `respond` makes the client's response from
    the group responses, in the order of `requests`. A group that ACLs deny is refused first, and
    does not count as in flight.
    """
    run = _run_here if len(requests) <= _FEW else call.in_thread
    responses, events = await run(_refused, call, api, requests)
    in_flight = call.services.in_flight
    at_once = min(_MOST_AT_ONCE, call.services.settings.queued_max_requests)
    for at in range(0, len(events), at_once):
        part = events[at : at + at_once]
        async with _acquired(in_flight, len(part)):
            decided = await asyncio.gather(*(send(event) for _, event in part))
        responses.update(zip((position for position, _ in part), decided, strict=True))
    return await run(lambda: respond([responses[position] for position in range(len(requests))]))


async def _run_here(work: Callable[..., T], *args: Any) -> T:
    return work(*args)


def _refused(
    call: RequestContext, api: str, requests: Iterable[tuple[str, Any]]
) -> tuple[dict[int, Response], list[tuple[int, RequestEvent]]]:
    """Return the refusals, and the requests to send, each with its position."""
    refusals: dict[int, Response] = {}
    events: list[tuple[int, RequestEvent]] = []
    for position, (group_id, body) in enumerate(requests):
        event = call.event(api, group_id, body)
        refusal = call.services.refusals.refusal_of(event)
        if refusal is None:
            events.append((position, event))
        else:
            refusals[position] = refusal
    return refusals, events


@asynccontextmanager
async def _acquired(in_flight: MemoryPool, size: int) -> AsyncIterator[None]:
    """Count `size` requests as in flight for the block; wait until the limit allows it."""
    acquired: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_acquired() -> None:
        acquired.set_result(None)

    if not in_flight.try_acquire(size, on_acquired):
        try:
            await acquired
        except asyncio.CancelledError:
            if acquired.cancelled():
                in_flight.withdraw(on_acquired)
            else:
                in_flight.release(size)
            raise
    try:
        yield
    finally:
        in_flight.release(size)
