"""Client requests that name many groups: each group becomes a request to the coordinator.

Each group counts as a request in flight. At most `_MOST_AT_ONCE` groups of a request are sent at a
time. The coordinator decides all waiting requests in one micro-batch, so more groups would delay
the heartbeats in it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from typing import Any

    from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.messages import RequestEvent, Response

T = TypeVar("T")

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
