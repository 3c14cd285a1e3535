"""The processing of one request, from its frame to its response.

A request first waits until the number of requests in flight is below the limit. Then the
coordinator decides it, or a task of the API answers it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from group_coordinator.pipeline.gateway.api import Decided
from group_coordinator.pipeline.gateway.wire import response_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.gateway.room import HeldAnswer
    from group_coordinator.schemas.messages import Response


T = TypeVar("T")


class Client(Protocol):
    """The callbacks of a request, with exactly one result: `answered` or `failed`.

    The result comes after the call that began the request. `held` counts the memory of the
    response.
    """

    held: HeldAnswer

    def taken_in(self) -> None:
        """Note that later requests cannot overtake this one any more."""

    def answered(self, answer: bytes | None) -> None:
        """Take the response, a frame; None if the client waits for none."""

    def failed(self, error: Exception) -> None:
        """Take the error that prevents a response."""


class Running(Protocol):
    """Work on a request that is in progress, and can be cancelled."""

    def cancel(self) -> object:
        """Cancel the work without a result."""


async def tell(answer: Callable[[], Awaitable[bytes | None]], client: Client) -> None:
    """Await a response, and pass it or its error to the client."""
    try:
        frame = await answer()
    # A bug in one API must neither leave its client without a result nor stop the gateway.
    except Exception as error:
        client.failed(error)
    else:
        client.answered(frame)


class Answering:
    """A request of an API, which starts once it may be in flight.

    `aside`: the response may be long, and is encoded in a thread.
    """

    __slots__ = (
        "_api",
        "_aside",
        "_call",
        "_client",
        "_has_room",
        "_number",
        "_request",
        "_running",
    )

    def __init__(
        self,
        api: ApiHandler,
        call: RequestContext,
        correlation_id: int,
        request: Any,
        client: Client,
        aside: bool = False,
    ) -> None:
        self._api = api
        self._aside = aside or api.aside
        self._call = call
        self._number = correlation_id
        self._request = request
        self._client = client
        self._running: Running | None = None
        self._has_room = False
        if api.parks or api.takes_room:
            self._begin()
        elif call.services.in_flight.take(1, self._enter):
            self._enter()

    def cancel(self) -> None:
        """Cancel the request, because the client does not wait for its response any more."""
        if self._running is None:
            self._call.services.in_flight.withdraw(self._enter)
        else:
            self._running.cancel()
            self._leave()

    def _enter(self) -> None:
        self._has_room = True
        self._begin()

    def _leave(self) -> None:
        if self._has_room:
            self._has_room = False
            self._call.services.in_flight.give_back(1)

    def _begin(self) -> None:
        answer = self._api.answer
        if not isinstance(answer, Decided):
            self._call.taken_in, self._call.held = self._client.taken_in, self._client.held
            told = tell(partial(self._answered, answer), self._client)
            self._running = asyncio.ensure_future(told)
            return
        try:
            event = answer.ask(self._call, self._request)
        # The caller may be another connection that has just released its slot. The error must not
        # be raised there.
        except Exception as error:
            self._leave()
            self._running = asyncio.get_running_loop().call_soon(self._client.failed, error)
        else:
            # As in Kafka, later requests of the connection do not overtake a parked request.
            taken_in = None if self._api.parks else self._client.taken_in
            link = self._call.services.link
            if answer.in_time:
                until = self._call.sent_after + link.commit_timeout_ms
                self._running = link.ask_in_time(event, until, self._decided, taken_in)
            else:
                self._running = link.ask_unrepeated(event, self._decided, taken_in)

    async def _answered(
        self, answer: Callable[[RequestContext, Any], Awaitable[Any]]
    ) -> bytes | None:
        try:
            response = await answer(self._call, self._request)
        finally:
            self._leave()
        if response is None:
            return None
        return await self._frame_aside(response) if self._aside else self._frame(response)

    def _decided(self, decided: Response) -> None:
        """Pass the coordinator's response to the client."""
        self._leave()
        if self._aside:
            told = tell(partial(self._frame_aside, decided), self._client)
            self._running = asyncio.ensure_future(told)
            return
        try:
            frame = self._frame(decided)
        except Exception as error:
            self._client.failed(error)
        else:
            self._client.answered(frame)

    async def _frame_aside(self, found: Any) -> bytes:
        return await self._call.in_thread(self._frame, found)

    def _frame(self, found: Any) -> bytes:
        """Encode the response; `found` is the coordinator's decision, or the API's response."""
        answer = self._api.answer
        if isinstance(answer, Decided):
            found = answer.respond(self._call, self._request, found)
        return response_frame(self._number, self._api, found, self._call.version)


class ReadAside:
    """A long request, which is decoded in a thread, so that the event loop serves other clients.

    `read` decodes the request, and `begin` starts to answer it.
    """

    __slots__ = ("_running",)

    def __init__(
        self, read: Callable[[], Awaitable[T]], begin: Callable[[T], Running], client: Client
    ) -> None:
        self._running: Running = asyncio.ensure_future(self._read(read, begin, client))

    def cancel(self) -> None:
        """Cancel the request, because the client does not wait for its response any more."""
        self._running.cancel()

    async def _read(
        self, read: Callable[[], Awaitable[T]], begin: Callable[[T], Running], client: Client
    ) -> None:
        try:
            self._running = begin(await read())
        # An invalid request closes its connection, as does a bug in an API.
        except Exception as error:
            client.failed(error)
