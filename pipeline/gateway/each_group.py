"""A client request that names many groups becomes a coordinator request for each group.

Each counts as a request in flight, as if it had been sent alone. At most `_AT_ONCE` are sent at a
time, and the next ones after their responses. The coordinator decides all waiting requests in one
micro-batch, so more of them would delay the heartbeats in it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from typing import Any

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.gateway.room import Room
    from group_coordinator.schemas.messages import RequestEvent, Response

T = TypeVar("T")

# The limit of groups of a request that are in flight at a time.
_AT_ONCE = 1_000
# More groups than these are processed in a thread, so that the event loop serves other clients.
_FEW = 100


async def ask_each(
    call: RequestContext,
    api: str,
    asked: Sequence[tuple[str, Any]],
    ask: Callable[[RequestEvent], Awaitable[Response]],
    respond: Callable[[list[Response]], T],
) -> T:
    """Return the response to a request. `asked` has the id of each group and its request body.

    `ask` sends one group's request to the coordinator. `respond` makes the client's response from
    the group responses, in the order of the request. A group request that ACLs deny is refused
    first, and does not count as in flight.
    """
    run = _at_once if len(asked) <= _FEW else call.in_thread
    answers, events = await run(_refused, call, api, asked)
    in_flight = call.services.in_flight
    at_once = min(_AT_ONCE, call.services.settings.queued_max_requests)
    for at in range(0, len(events), at_once):
        part = events[at : at + at_once]
        async with _taken(in_flight, len(part)):
            found = await asyncio.gather(*(ask(event) for _, event in part))
        answers.update(zip((place for place, _ in part), found, strict=True))
    return await run(lambda: respond([answers[place] for place in range(len(asked))]))


async def _at_once(work: Callable[..., T], *args: Any) -> T:
    return work(*args)


def _refused(
    call: RequestContext, api: str, asked: Iterable[tuple[str, Any]]
) -> tuple[dict[int, Response], list[tuple[int, RequestEvent]]]:
    """Return the refusals by position, and the requests to send with their positions."""
    answers: dict[int, Response] = {}
    events: list[tuple[int, RequestEvent]] = []
    for place, (group_id, body) in enumerate(asked):
        event = call.event(api, group_id, body)
        refusal = call.services.refusals.of(event)
        if refusal is None:
            events.append((place, event))
        else:
            answers[place] = refusal
    return answers, events


@asynccontextmanager
async def _taken(room: Room, size: int) -> AsyncIterator[None]:
    """Take `size` of a room for the block, and wait until it is available."""
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grant() -> None:
        granted.set_result(None)

    if not room.take(size, grant):
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                room.withdraw(grant)
            else:
                room.give_back(size)
            raise
    try:
        yield
    finally:
        room.give_back(size)
