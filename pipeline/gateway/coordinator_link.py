"""The link from the event loop to the coordinator: group requests out, responses back.

A `RequestClient` runs in its own threads. The responses of one read of the `responses` table are
passed to the event loop together, because waking the loop costs as much as a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from group_coordinator.pipeline.client import (
    BufferExhausted,
    Failure,
    RequestTooLarge,
    UnwritableRequest,
)
from group_coordinator.pipeline.client.coordinator_clocks import SIGNED_FOR_MS, time_request
from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.pipeline.errors import without_traceback
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.client import RequestClient

log = logging.getLogger(__name__)

# The time between two attempts to submit a request while the producer's buffer is full, s.
_OFFER_EVERY_S = 0.02


def new_request_id() -> str:
    """Return a random request id, which cannot be guessed from other ids.

    Otherwise another writer of `requests` could write a row with this id first, and the client
    would get the response to that row.
    """
    return f"gateway-{token_hex(16)}"


class CoordinatorLink:
    """A sender of requests to the coordinator of a root, for one event loop.

    The client's producer must not block (`max.block.ms` 0), because that would block the loop.
    `commit_timeout_ms` is `offsets.commit.timeout.ms`. A request for which `refusal_of` returns a
    response is answered with it, and not sent.
    """

    def __init__(
        self,
        client: RequestClient,
        commit_timeout_ms: int,
        refusal_of: Callable[[RequestEvent], Response | None],
    ) -> None:
        self.commit_timeout_ms = commit_timeout_ms
        self._client = client
        self._refusal_of = refusal_of
        self._loop = asyncio.get_running_loop()
        self._answered: deque[Asked] = deque()
        self._is_due = False

    def ask(
        self,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None = None,
    ) -> InFlightRequest:
        """Send a request without a deadline; call `then` with its response, after this call.

        `taken_in` is called, perhaps at once, when no later request can overtake this one.

        A failed write of the request, or read of its response, is answered with
        COORDINATOR_NOT_AVAILABLE, which every client retries. A request that is too large, or that
        cannot be written as a row, is answered with INVALID_REQUEST. Neither response has a body.
        """
        return self._refuse(event, then, taken_in) or self._send(event, then, taken_in)

    def ask_unrepeated(
        self,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None = None,
    ) -> InFlightRequest:
        """Send a request as `ask` does. A signed request has a deadline of `SIGNED_FOR_MS`."""
        if not self._client.signs:
            return self.ask(event, then, taken_in)
        return self.ask_in_time(event, since_boot_ms() + SIGNED_FOR_MS, then, taken_in)

    def ask_in_time(
        self,
        event: RequestEvent,
        until: int,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None = None,
    ) -> InFlightRequest:
        """Send a request as `ask` does, with a deadline, after which it gets REQUEST_TIMED_OUT.

        `until` is the deadline in ms of `since_boot_ms`. The request carries it in the time of the
        group's coordinator, estimated from the group's last response (`CoordinatorClocks`). If the
        group had no response yet, FindCoordinator is sent first, because it changes nothing. If the
        coordinator's clock was set back since, the deadline is later by as much.
        """
        refused = self._refuse(event, then, taken_in)
        if refused is not None:
            return refused
        deadline = self._client.clocks.at(event.group_id, until)
        if deadline is not None:
            return self._send(replace(event, deadline=deadline), then, taken_in)
        question = time_request(event, new_request_id())
        dating = _Dating()

        def told(response: Response) -> None:
            if response.responded_at is None:
                then(failed(event, response.error_code, response.error_message or ""))
            else:
                dating.asked = self.ask_in_time(event, until, then, taken_in)

        # A client that may not find the coordinator gets a denial from it, also with its time.
        dating.asked = self._send(question, told)
        return dating

    async def answer(self, event: RequestEvent, until: int | None = None) -> Response:
        """Send a request and return its response, as `ask`, or as `ask_in_time` if `until` is set.

        If the caller is cancelled, the request is cancelled too.
        """
        future: asyncio.Future[Response] = self._loop.create_future()

        def then(response: Response) -> None:
            if not future.done():
                future.set_result(response)

        asked = self.ask(event, then) if until is None else self.ask_in_time(event, until, then)
        try:
            return await future
        except asyncio.CancelledError:
            asked.cancel()
            raise

    def _refuse(
        self,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None,
    ) -> asyncio.Handle | None:
        """Answer a refused request, after this call; return None if it is to be sent."""
        refusal = self._refusal_of(event)
        if refusal is None:
            return None
        if taken_in is not None:
            taken_in()
        return self._loop.call_soon(then, refusal)

    def _send(
        self,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None = None,
    ) -> Asked:
        asked = Asked(self, event, then, taken_in)
        self.offer(asked)
        return asked

    def offer(self, asked: Asked) -> None:
        """Submit a request to the producer; retry later while the producer's buffer is full."""
        if asked.is_cancelled:
            return
        try:
            self._client.submit(asked.event, asked)
        except BufferExhausted:
            # The client's connection is not read meanwhile, so memory is bounded.
            self._loop.call_later(_OFFER_EVERY_S, self.offer, asked)
        except Failure as error:
            asked.set_exception(error)
        else:
            if asked.taken_in is not None:
                asked.taken_in()

    def forget(self, asked: Asked) -> None:
        """Drop a request, so that its response is ignored."""
        self._client.forget(asked.event.request_id)

    # --- in a thread of the client ----------------------------------------------------------------

    def hand_over(self, asked: Asked) -> None:
        """Schedule the callback of a request in the event loop."""
        self._answered.append(asked)
        # `_take` clears the flag before it reads the queue. So an item that it misses sets the flag
        # again.
        if not self._is_due and not self._loop.is_closed():
            self._is_due = True
            self._loop.call_soon_threadsafe(self._take)

    # --- in the loop ------------------------------------------------------------------------------

    def _take(self) -> None:
        self._is_due = False
        unanswered: dict[str, list[RequestEvent]] = {}
        while self._answered:
            asked = self._answered.popleft()
            error = asked.complete()
            if error is not None:
                unanswered.setdefault(str(error), []).append(asked.event)
        # One line for all requests, because they fail together when the tables cannot be read.
        for why, (first, *others) in unanswered.items():
            more = f" and {len(others):,} more" if others else ""
            group_id = quoted_name(first.group_id)
            log.warning("%s of group %s%s: %s", first.api, group_id, more, quoted_text(why))


class InFlightRequest(Protocol):
    """A request that was sent and is not answered yet."""

    def cancel(self) -> None:
        """Cancel the request, so that its callback is not called. Call it in the loop."""


class _Dating:
    """A request that waits for the time of its coordinator."""

    __slots__ = ("asked",)
    asked: InFlightRequest

    def cancel(self) -> None:
        """Cancel the time request, or the request that followed it."""
        self.asked.cancel()


class Asked:
    """A request in flight. A thread of the client sets its result, and the loop calls `then`."""

    __slots__ = ("_error", "_link", "_then", "answer", "event", "taken_in")

    def __init__(
        self,
        link: CoordinatorLink,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None,
    ) -> None:
        self._link = link
        self.event = event
        self.taken_in = taken_in
        self._then: Callable[[Response], None] | None = then
        self.answer: Response | None = None
        self._error: BaseException | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the request was cancelled or its callback called."""
        return self._then is None

    def cancel(self) -> None:
        """Cancel the request, so that its callback is not called. Call it in the loop."""
        self._then = None
        self._link.forget(self)

    def set_running_or_notify_cancel(self) -> bool:
        """Return True, because only the loop may check whether the request was cancelled."""
        return True

    def set_result(self, response: Response, /) -> None:
        """Take the response, in a thread of the client."""
        self.answer = response
        self._link.hand_over(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error, in a thread of the client."""
        self._error = without_traceback(error)
        self._link.hand_over(self)

    def complete(self) -> BaseException | None:
        """Call the callback, in the loop; return an error of the tables, for the log.

        Errors that the request itself caused, and results of cancelled requests, return None.
        """
        then, self._then = self._then, None
        if then is None:
            return None
        if self.answer is not None:
            then(self.answer)
            return None
        error = self._error
        if isinstance(error, (RequestTooLarge, UnwritableRequest)):
            then(failed(self.event, ErrorCode.INVALID_REQUEST, str(error)))
            return None
        then(failed(self.event, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
        return error


def when_late(code: int) -> int:
    """Return the error code, with REQUEST_TIMED_OUT replaced by COORDINATOR_NOT_AVAILABLE.

    Clients retry after that code. Kafka also sends it for a commit that was not replicated within
    `offsets.commit.timeout.ms`.
    """
    is_late = code == ErrorCode.REQUEST_TIMED_OUT
    return int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_late else code


def failed(event: RequestEvent, code: int, message: str) -> Response:
    """Return the gateway's error response to a request that the coordinator did not answer."""
    return Response(
        request_id=event.request_id,
        group_id=event.group_id,
        api=event.api,
        error_code=code,
        error=ERROR_NAMES[code],
        error_message=message,
    )
