"""From asyncio to the coordinator and back: a group request goes in as a row, its answer comes out.

A `RequestClient` has threads of its own. Answers that one reading of `responses` brings are handed
to the event loop together: waking the loop costs as much as deciding a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from pipeline.client import (
    BufferExhausted,
    Failure,
    RequestTooLarge,
    UnwritableRequest,
)
from schemas.errors import ERROR_NAMES, ErrorCode
from schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from pipeline.client import RequestClient

log = logging.getLogger(__name__)

# How often a request is offered to a producer that has no room, s.
_OFFER_EVERY_S = 0.02


class CoordinatorLink:
    """Asks the coordinator of a root; for the tasks of one event loop.

    The client's producer must not block (`max.block.ms` 0): the loop would stand still for all.
    """

    def __init__(self, client: RequestClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._answered: deque[_Waiting] = deque()
        self._is_due = False

    async def ask(self, event: RequestEvent) -> Response:
        """Send a request and return its answer, however long that takes.

        A request that could not be written, or whose answer could not be read, is answered with
        COORDINATOR_NOT_AVAILABLE, upon which every client asks again; one that no row can hold with
        INVALID_REQUEST. Neither has a body. Cancelled, it stops waiting for the answer.
        """
        waiting = _Waiting(self)
        while True:
            try:
                self._client.submit(event, waiting)
                break
            except BufferExhausted:
                # The client's connection is not read meanwhile: it waits, and memory is bounded.
                await asyncio.sleep(_OFFER_EVERY_S)
            except (RequestTooLarge, UnwritableRequest) as error:
                return failed(event, ErrorCode.INVALID_REQUEST, str(error))
            except Failure as error:
                return self._unavailable(event, error)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            self._client.forget(event.request_id)
            raise
        except Failure as error:
            return self._unavailable(event, error)

    def _unavailable(self, event: RequestEvent, error: Failure) -> Response:
        log.warning("%s of group %r: %s", event.api, event.group_id, error)
        return failed(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    # --- in a thread of the client ----------------------------------------------------------------

    def hand_over(self, waiting: _Waiting) -> None:
        """Have the loop complete a request's future."""
        self._answered.append(waiting)
        # `_take` clears the mark before it takes: what is appended after its last look marks again.
        if not self._is_due and not self._loop.is_closed():
            self._is_due = True
            self._loop.call_soon_threadsafe(self._take)

    # --- in the loop ------------------------------------------------------------------------------

    def new_future(self) -> asyncio.Future[Response]:
        """A future of the loop."""
        return self._loop.create_future()

    def _take(self) -> None:
        self._is_due = False
        while self._answered:
            self._answered.popleft().complete()


class _Waiting:
    """Waits for one answer: told in a thread of the client, it completes its future in the loop."""

    __slots__ = ("_answer", "_error", "_link", "future")

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link
        self._answer: Response | None = None
        self._error: BaseException | None = None
        self.future = link.new_future()

    def set_running_or_notify_cancel(self) -> bool:
        """Whether it still waits: only the loop knows, so the loop looks."""
        return True

    def set_result(self, response: Response, /) -> None:
        """Take the answer."""
        self._answer = response
        self._link.hand_over(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Hear why there is no answer."""
        self._error = error
        self._link.hand_over(self)

    def complete(self) -> None:
        """Complete the future, in the loop."""
        if self.future.done():
            return
        if self._answer is not None:
            self.future.set_result(self._answer)
        elif self._error is not None:
            self.future.set_exception(self._error)


def failed(event: RequestEvent, code: ErrorCode, message: str) -> Response:
    """An answer of the gateway's own to a request that the coordinator did not answer."""
    return Response(
        request_id=event.request_id,
        group_id=event.group_id,
        api=event.api,
        error_code=code,
        error=ERROR_NAMES[code],
        error_message=message,
    )
