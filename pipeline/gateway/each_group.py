"""One request that names many groups: each is a request to the coordinator of its own.

Each takes room among the requests in flight, as if it had been sent alone. At most `_AT_ONCE` are
asked at once, and the next ones after their answers. The coordinator decides all that waits in one
batch, so that more would keep the heartbeats in it waiting.
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

# How many groups of a request are asked at once.
_AT_ONCE = 1_000
# More groups than these are looked at in a thread: the loop serves others meanwhile.
_FEW = 100


async def ask_each(
    call: RequestContext,
    api: str,
    asked: Sequence[tuple[str, Any]],
    ask: Callable[[RequestEvent], Awaitable[Response]],
    respond: Callable[[list[Response]], T],
) -> T:
    """Return the response to a request. `asked`: each group's id, and what is asked of it.

    `ask` has the coordinator decide one group's request, and `respond` makes the response of the
    answers, which are in order. What ACLs forbid is refused before, and takes no room.
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
    """The answers that are known by their place, and what is to be decided."""
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
    """Have room while the block runs."""
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
