"""From asyncio to the coordinator and back: a group request goes in as a row, its answer comes out.

A `RequestClient` has threads of its own. Answers that one reading of `responses` brings are handed
to the event loop together: waking the loop costs as much as deciding a heartbeat.
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
from group_coordinator.pipeline.client.coordinator_clocks import SIGNED_FOR_MS, time_question
from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.pipeline.errors import bare
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.client import RequestClient

log = logging.getLogger(__name__)

# How often a request is offered to a producer that has no room, s.
_OFFER_EVERY_S = 0.02


def new_request_id() -> str:
    """An id that nobody can guess, not even from the others.

    Whoever may append to `requests` could write a row under it first, and be answered instead.
    """
    return f"gateway-{token_hex(16)}"


class CoordinatorLink:
    """Asks the coordinator of a root; for one event loop.

    The client's producer must not block (`max.block.ms` 0): the loop would stand still for all.
    `commit_timeout_ms` is `offsets.commit.timeout.ms`. A request that has a `refusal_of` it is
    answered so, and not sent.
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
        """Send a request; `then` is called with its answer, later, however long that takes.

        `taken_in` is called, perhaps at once, when no request that comes later can overtake it.
        A request that could not be written, or whose answer could not be read, is answered with
        COORDINATOR_NOT_AVAILABLE, upon which every client asks again; one that no row can hold with
        INVALID_REQUEST. Neither has a body.
        """
        return self._refuse(event, then, taken_in) or self._send(event, then, taken_in)

    def ask_unrepeated(
        self,
        event: RequestEvent,
        then: Callable[[Response], None],
        taken_in: Callable[[], None] | None = None,
    ) -> InFlightRequest:
        """Send a request; one that is signed is decided within `SIGNED_FOR_MS`; else as `ask`."""
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
        """Send a request that is decided until then, or answered REQUEST_TIMED_OUT; else as `ask`.

        `until` is in ms of `since_boot_ms`. The deadline that the request carries is the time of
        its group's coordinator, which the group's last answer told (`CoordinatorClocks`). A
        coordinator that has told none yet is asked first, by FindCoordinator, which changes
        nothing. Where its clock was set back since, the request is decided later by as much.
        """
        refused = self._refuse(event, then, taken_in)
        if refused is not None:
            return refused
        deadline = self._client.clocks.at(event.group_id, until)
        if deadline is not None:
            return self._send(replace(event, deadline=deadline), then, taken_in)
        question = time_question(event, new_request_id())
        dating = _Dating()

        def told(response: Response) -> None:
            if response.responded_at is None:
                then(failed(event, response.error_code, response.error_message or ""))
            else:
                dating.asked = self.ask_in_time(event, until, then, taken_in)

        # Whoever may not ask who coordinates a group is told so by its coordinator, with the time.
        dating.asked = self._send(question, told)
        return dating

    async def answer(self, event: RequestEvent, until: int | None = None) -> Response:
        """Send a request and return its answer, as `ask` does, and `ask_in_time` with an `until`.

        Cancelled, it stops waiting.
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
        """Answer what is refused, after this call; None if it is to be sent."""
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
        """Hand a request to the producer, again and again while that has no room."""
        if asked.is_cancelled:
            return
        try:
            self._client.submit(asked.event, asked)
        except BufferExhausted:
            # The client's connection is not read meanwhile: it waits, and memory is bounded.
            self._loop.call_later(_OFFER_EVERY_S, self.offer, asked)
        except Failure as error:
            asked.set_exception(error)
        else:
            if asked.taken_in is not None:
                asked.taken_in()

    def forget(self, asked: Asked) -> None:
        """Wait no more for an answer."""
        self._client.forget(asked.event.request_id)

    # --- in a thread of the client ----------------------------------------------------------------

    def hand_over(self, asked: Asked) -> None:
        """Have the loop tell a request's asker."""
        self._answered.append(asked)
        # `_take` clears the mark before it takes: what is appended after its last look marks again.
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
        # One line, not one for each: all that wait fail at once when the tables cannot be read.
        for why, (first, *others) in unanswered.items():
            more = f" and {len(others):,} more" if others else ""
            group_id = quoted_name(first.group_id)
            log.warning("%s of group %s%s: %s", first.api, group_id, more, quoted_text(why))


class InFlightRequest(Protocol):
    """A request on its way."""

    def cancel(self) -> None:
        """Wait no more for the answer, in the loop."""


class _Dating:
    """A request whose coordinator is asked for the time first."""

    __slots__ = ("asked",)
    asked: InFlightRequest

    def cancel(self) -> None:
        """Wait no more for the answer, in the loop."""
        self.asked.cancel()


class Asked:
    """A request that waits for its answer: told in a thread of the client, it tells in the loop."""

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
        """Whether nobody waits for the answer any more."""
        return self._then is None

    def cancel(self) -> None:
        """Wait no more for the answer, in the loop."""
        self._then = None
        self._link.forget(self)

    def set_running_or_notify_cancel(self) -> bool:
        """Whether it still waits: only the loop knows, so the loop looks."""
        return True

    def set_result(self, response: Response, /) -> None:
        """Take the answer."""
        self.answer = response
        self._link.hand_over(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Hear why there is no answer."""
        self._error = bare(error)
        self._link.hand_over(self)

    def complete(self) -> BaseException | None:
        """Tell whoever waits, in the loop; return why there is no answer, if that is the root's."""
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
    """Return a code, for clients: upon COORDINATOR_NOT_AVAILABLE they send a late request again.

    So does Kafka answer a commit that was not replicated within `offsets.commit.timeout.ms`.
    """
    is_late = code == ErrorCode.REQUEST_TIMED_OUT
    return int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_late else code


def failed(event: RequestEvent, code: int, message: str) -> Response:
    """An answer of the gateway's own to a request that the coordinator did not answer."""
    return Response(
        request_id=event.request_id,
        group_id=event.group_id,
        api=event.api,
        error_code=code,
        error=ERROR_NAMES[code],
        error_message=message,
    )
