"""The link from the event loop to the coordinator: group requests out, responses back.

A `RequestClient` runs in its own threads. All responses of one read of `responses` are passed to
the event loop together, because waking the loop costs as much as a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from secrets import token_hex
from typing import TYPE_CHECKING

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
_RETRY_S = 0.02


def new_request_id() -> str:
    """Return a random request id.

    If it could be guessed, another writer of `requests` could write a row with it first, and the
    client would get the response to that row.
    """
    return f"gateway-{token_hex(16)}"


class CoordinatorLink:
    """A sender of group requests to the coordinator of a root, for one event loop.

    The client's producer must not block the loop (`max.block.ms` 0). `commit_timeout_ms` is
    `offsets.commit.timeout.ms`. A request for which `refusal_of` returns a response is answered
    with it, and not sent.
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
        self._completed: deque[CoordinatorRequest] = deque()
        self._is_due = False

    def send(
        self,
        event: RequestEvent,
        on_response: Callable[[Response], None],
        on_queued: Callable[[], None] | None = None,
        until: int | None = None,
    ) -> CoordinatorRequest:
        """Send a request; call `on_response` with its response, after this call.

        `on_queued` is called, perhaps at once, when no later request can overtake this one.

        After the deadline `until`, ms of `since_boot_ms`, the response is REQUEST_TIMED_OUT. The
        row has it in the time of the group's coordinator, estimated from the group's last response
        (`CoordinatorClocks`). If there is none yet, FindCoordinator is sent first, because it
        changes nothing. If the coordinator's clock was set back since, the deadline is later by as
        much.

        If the tables fail, the response is COORDINATOR_NOT_AVAILABLE, which every client retries.
        If the request is too large or cannot be a row, it is INVALID_REQUEST. Neither has a body.
        """
        request = CoordinatorRequest(self, event, on_response, on_queued)
        if until is not None:
            self._submit_by(request, until)
        elif not self._refuse(request):
            self._submit(request)
        return request

    def send_once(
        self,
        event: RequestEvent,
        on_response: Callable[[Response], None],
        on_queued: Callable[[], None] | None = None,
    ) -> CoordinatorRequest:
        """Send a request as `send` does; a signed request gets a deadline of `SIGNED_FOR_MS`.

        So a copy of its row is not decided again after its id was forgotten.
        """
        until = since_boot_ms() + SIGNED_FOR_MS if self._client.signs else None
        return self.send(event, on_response, on_queued, until)

    async def send_and_wait(self, event: RequestEvent, until: int | None = None) -> Response:
        """Send a request and return its response; `until` is the deadline, as in `send`.

        Cancelling the caller cancels the request.
        """
        future: asyncio.Future[Response] = self._loop.create_future()

        def on_response(response: Response) -> None:
            if not future.done():
                future.set_result(response)

        request = self.send(event, on_response, until=until)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancel()
            raise

    def _refuse(self, request: CoordinatorRequest) -> bool:
        """Answer a refused request, after this call; return False if it is to be sent."""
        refusal = self._refusal_of(request.event)
        if refusal is None:
            return False
        if request.on_queued is not None:
            request.on_queued()
        request.response = refusal
        self._loop.call_soon(request.complete)
        return True

    def _submit(self, request: CoordinatorRequest) -> None:
        if request.is_cancelled:
            return
        try:
            self._client.submit(request.event, request)
        except BufferExhausted:
            # The client's connection is not read meanwhile, so memory is bounded.
            self._loop.call_later(_RETRY_S, self._submit, request)
        except Failure as error:
            request.set_exception(error)
        else:
            if request.on_queued is not None:
                request.on_queued()

    def _submit_by(self, request: CoordinatorRequest, until: int) -> None:
        if self._refuse(request):
            return
        event, on_response, on_queued = request.event, request.on_response, request.on_queued
        assert on_response is not None  # a cancelled request does not come here
        deadline = self._client.clocks.at(event.group_id, until)
        if deadline is not None:
            request.event = replace(event, deadline=deadline)
            self._submit(request)
            return

        def on_time(response: Response) -> None:
            if response.responded_at is None:
                on_response(failed(event, response.error_code, response.error_message or ""))
            else:
                request.replace_with(event, on_response, on_queued)
                self._submit_by(request, until)

        # A client that may not find the coordinator gets a denial from it, also with its time.
        request.replace_with(time_request(event, new_request_id()), on_time, None)
        self._submit(request)

    def forget(self, request: CoordinatorRequest) -> None:
        """Ignore the response to a request."""
        self._client.forget(request.event.request_id)

    # --- in a thread of the client ----------------------------------------------------------------

    def hand_over(self, request: CoordinatorRequest) -> None:
        """Schedule the callback of a request in the event loop."""
        self._completed.append(request)
        # `_run_callbacks` clears the flag before it reads the queue. So a request that it misses
        # sets the flag again.
        if not self._is_due and not self._loop.is_closed():
            self._is_due = True
            self._loop.call_soon_threadsafe(self._run_callbacks)

    # --- in the loop ------------------------------------------------------------------------------

    def _run_callbacks(self) -> None:
        self._is_due = False
        failures: dict[str, list[RequestEvent]] = {}
        while self._completed:
            request = self._completed.popleft()
            error = request.complete()
            if error is not None:
                failures.setdefault(str(error), []).append(request.event)
        # One line for all requests, because they fail together when the tables cannot be read.
        for why, (first, *others) in failures.items():
            more = f" and {len(others):,} more" if others else ""
            group_id = quoted_name(first.group_id)
            log.warning("%s of group %s%s: %s", first.api, group_id, more, quoted_text(why))


class CoordinatorRequest:
    """A request in flight. A thread of the client sets its result; the loop calls `on_response`."""

    __slots__ = ("_error", "_link", "event", "on_queued", "on_response", "response")

    def __init__(
        self,
        link: CoordinatorLink,
        event: RequestEvent,
        on_response: Callable[[Response], None],
        on_queued: Callable[[], None] | None,
    ) -> None:
        self._link = link
        self.event = event
        self.on_queued = on_queued
        self.on_response: Callable[[Response], None] | None = on_response
        self.response: Response | None = None
        self._error: BaseException | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the request was cancelled, or its callback was called."""
        return self.on_response is None

    def cancel(self) -> None:
        """Prevent the call of `on_response`. Call this in the loop."""
        self.on_response = None
        self._link.forget(self)

    def replace_with(
        self,
        event: RequestEvent,
        on_response: Callable[[Response], None],
        on_queued: Callable[[], None] | None,
    ) -> None:
        """Reuse the object for another request, before this one is sent or after its callback."""
        self.event, self.on_response, self.on_queued = event, on_response, on_queued
        self.response = self._error = None

    def set_running_or_notify_cancel(self) -> bool:
        """Return True, because only the loop may check whether the request was cancelled."""
        return True

    def set_result(self, response: Response, /) -> None:
        """Take the response, in a thread of the client."""
        self.response = response
        self._link.hand_over(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error, in a thread of the client."""
        self._error = without_traceback(error)
        self._link.hand_over(self)

    def complete(self) -> BaseException | None:
        """Call the callback, in the loop; return an error of the tables, for the log.

        Errors that the request itself caused, and results of cancelled requests, return None.
        """
        on_response, self.on_response = self.on_response, None
        if on_response is None:
            return None
        if self.response is not None:
            on_response(self.response)
            return None
        error = self._error
        if isinstance(error, (RequestTooLarge, UnwritableRequest)):
            on_response(failed(self.event, ErrorCode.INVALID_REQUEST, str(error)))
            return None
        on_response(failed(self.event, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
        return error


def when_late(code: int) -> int:
    """Return the error code, with REQUEST_TIMED_OUT replaced by COORDINATOR_NOT_AVAILABLE.

    Clients retry this code. Kafka also sends it if a commit is not replicated within
    `offsets.commit.timeout.ms`.
    """
    is_late = code == ErrorCode.REQUEST_TIMED_OUT
    return int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_late else code


def failed(event: RequestEvent, code: int, message: str) -> Response:
    """Return the gateway's own error response to a request."""
    return Response(
        request_id=event.request_id,
        group_id=event.group_id,
        api=event.api,
        error_code=code,
        error=ERROR_NAMES[code],
        error_message=message,
    )
