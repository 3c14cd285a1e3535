"""One client's connection: its frames are answered in order, one at a time, as a broker does.

A request is read when the answer to the one before has been written. Until then the client's bytes
wait in its socket: a client that sends faster than it is answered costs no memory here. Nor does
one that announces a large request: it is read when there is room for it (`incoming`).

Requests that stand in one queue are the exception: Produce, whose records wait for their writer,
and Heartbeat, OffsetCommit and LeaveGroup, which become rows of `requests`. The next one begins
once the one before stands in that queue, where nothing overtakes it; the answers are in the order
of the requests. Otherwise each would wait for a commit of its own: librdkafka sends a Produce for
each partition, one after the other, and a connection that many members share would answer one
heartbeat in each of the coordinator's batches.

Source: Apache Kafka, SocketServer (a channel is muted while a request of it is in progress).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from group_coordinator.pipeline.gateway.incoming import Incoming
from group_coordinator.pipeline.gateway.polls import SentTimes
from group_coordinator.pipeline.gateway.room import HeldAnswer
from group_coordinator.pipeline.gateway.wire import InvalidFrame, RefusedRequest, frame_size
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.schemas.apis import APIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.answering import Running
    from group_coordinator.pipeline.gateway.places import ClientAddress
    from group_coordinator.pipeline.gateway.polls import Polls
    from group_coordinator.pipeline.gateway.seldom import Seldom
    from group_coordinator.pipeline.gateway.session import Session

log = logging.getLogger(__name__)

_SIZE_BYTES = 4
# The queues in which requests of a connection follow each other, by how their frames begin.
_QUEUES = {api.frames_begin: api.queue for api in APIS.values() if api.queue is not None}
# What is done though its client has left: Produce with acks=0, and the OffsetCommit and LeaveGroup
# of a consumer that closes while its join waits. All else is done for its answer.
_DONE_UNHEARD = tuple(api.frames_begin for api in APIS.values() if api.runs_after_disconnect)
# Frames that are read ahead; the socket is not read while there are so many.
_READ_AHEAD = 2
# How many of a connection's requests are in progress at most.
_MOST_AT_ONCE = 64
# How long a client may take no byte of an answer before its connection is closed, s: a client waits
# for no answer longer than that (request.timeout.ms of Kafka's clients).
TAKE_S = 30.0
# The time between a last answer and the end of its connection.
_TO_READ_S = 0.1
# How long the TLS handshake and the SASL exchange may take together, s. A broker of Kafka's has no
# such setting. A client of librdkafka gives up after as long (socket.connection.setup.timeout.ms).
LOG_IN_S = 30.0


class _Turn:
    """A frame that is being answered, and its place among the connection's answers.

    What runs for it knows it, to tell it the answer. Once told it forgets what ran. Otherwise only
    the garbage collector would free each request, and with many members it would stop the gateway's
    answers for as long as it runs.
    """

    __slots__ = (
        "_connection",
        "answer",
        "error",
        "frame",
        "held",
        "is_over",
        "is_taken_in",
        "running",
    )

    def __init__(self, connection: Connection, frame: bytes) -> None:
        self._connection = connection
        self.held = connection.held
        self.frame = frame
        self.running: Running | None = None
        self.is_taken_in = self.is_over = False
        self.answer: bytes | None = None
        self.error: Exception | None = None

    def cancel(self) -> None:
        if self.running is not None:
            self.running.cancel()

    def taken_in(self) -> None:
        self.is_taken_in = True
        # Within `begin` the connection goes on by itself.
        if self.running is not None:
            self._connection.go_on()

    def answered(self, answer: bytes | None) -> None:
        self.is_over, self.answer, self.running = True, answer, None
        self._connection.answer_soon()

    def failed(self, error: Exception) -> None:
        self.is_over, self.error, self.running = True, error, None
        self._connection.answer()


class Connection(asyncio.BufferedProtocol):
    """A client's socket, from `address`; `on_lost` hears of its end.

    What arrives is read into `arrivals`, which the connections of a loop share: to make room for
    each arrival takes longer than to read a heartbeat. Made when the socket is accepted, in the
    loop; the TLS handshake, if there is one, comes before `connection_made`.
    """

    def __init__(
        self,
        session: Session,
        arrivals: memoryview,
        address: ClientAddress,
        polls: Polls,
        lines: Seldom,
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._session = session
        self._arrivals = arrivals
        self.address = address
        self._lines = lines
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._log_in_until = self._loop.time() + LOG_IN_S
        self._log_in: asyncio.TimerHandle | None = None
        self._incoming = Incoming(address.memory, self._cut, self._cut_off)
        self.held = HeldAnswer(address.memory)
        # While an answer is not written: when the client has to have taken a byte of it.
        self._taking: asyncio.TimerHandle | None = None
        # Each frame, and the time after which it was sent.
        self._frames: deque[tuple[bytes, int]] = deque()
        self._sent = SentTimes(polls)
        self._turns: deque[_Turn] = deque()
        self._reading = True
        self._may_write = True
        # Answers are going to be sent before the loop looks at its sockets again.
        self._answers_soon = False
        # No more frames are read; and none is begun any more.
        self._ending = False
        self._over = True
        # Nobody hears of an answer any more.
        self._lost = False
        self.is_made = False
        self.last_used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether the client waits: to be served, for an answer, or for room to send more."""
        return bool(self._turns) or self._incoming.waits_for_room or not self.is_made

    # --- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to answer."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_made, self._over = True, False
        if self._session.is_stranger:
            self._log_in = self._loop.call_at(self._log_in_until, self._end_log_in)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where what has come is to be read to."""
        return self._arrivals

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes in, cut them into frames, and begin to answer."""
        self._sent.read()
        # More may be left in the socket. TLS hands over a little less than it has read.
        if 2 * nbytes >= len(self._arrivals):
            self._sent.polled()
        data = bytes(self._arrivals[:nbytes])
        size = nbytes - _SIZE_BYTES
        # Nearly always it is one small frame, which is begun at once.
        if (
            size <= FREE_BYTES
            and size <= self._session.largest_frame
            and frame_size(data) == size
            and not (self._frames or self._incoming.buffer)
            and self._may_begin(frame := data[_SIZE_BYTES:])
        ):
            self._begin(frame, self._sent.after)
        # Of what comes while the last answer is still to be read nothing is kept.
        elif not self._over:
            self._incoming.take_in(data)
            self._cut()

    def pause_writing(self) -> None:
        """Answer no more until the client has read."""
        self._may_write = False
        self._watch(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on answering."""
        self._may_write = True
        self._watch_no_more()
        self.held.shrink()
        self.go_on()

    def _watch(self, unwritten: int) -> None:
        """Count what is not written, and look whether the client takes any of it."""
        self.held.shrink(unwritten)
        self._taking = self._loop.call_later(TAKE_S, self._check_taken, unwritten)

    def _watch_no_more(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _check_taken(self, before: int) -> None:
        unwritten = self._transport.get_write_buffer_size()
        if unwritten == before:
            self._cut_off(f"it took no byte of its answer for {TAKE_S:g} s")
        else:
            # A slow client is no idle one.
            self.last_used = time.monotonic()
            self._watch(unwritten)

    def eof_received(self) -> bool:
        """Go on while there is something to do. Over TLS the transport closes in any case."""
        self._leave()
        return not self._over

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Do what is still to be done."""
        was_over = self._over
        self._lost = self._may_write = True
        self._leave()
        if was_over:
            self._finish()

    def _leave(self) -> None:
        """The client has left: it sends nothing any more, and most of what it sent is void."""
        self._ending = True
        kept: deque[_Turn] = deque()
        for turn in self._turns:
            if turn.frame.startswith(_DONE_UNHEARD):
                kept.append(turn)
            else:
                turn.cancel()
                self._settle(turn)
        self._turns = kept
        self._frames = deque(each for each in self._frames if each[0].startswith(_DONE_UNHEARD))
        self.go_on()

    def _finish(self) -> None:
        if self._log_in is not None:
            self._log_in.cancel()
        self._watch_no_more()
        self.held.close()
        self._on_lost(self)

    # --- reading ----------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut what has come into frames; stop where the next frame has no room yet."""
        try:
            while (frame := self._next_frame()) is not None:
                self._frames.append((frame, self._sent.after))
        except InvalidFrame as error:
            self._refuse(str(error))
        else:
            self.go_on()

    def _next_frame(self) -> bytes | None:
        # While the socket is not read for frames that wait, no client could send the rest in time.
        reads_on = len(self._frames) < _READ_AHEAD
        return self._incoming.next_frame(self._session.largest_frame, reads_on)

    def _read_or_not(self) -> None:
        """Read the socket unless frames, room or the end have to be waited for."""
        waits = self._incoming.waits_for_room or len(self._frames) >= _READ_AHEAD
        wanted = not (waits or self._ending)
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._sent.polled()
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # --- at work ----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Begin to answer the next frame, unless another one or the client has to be waited for."""
        while self._frames and self._may_begin(self._frames[0][0]):
            self._begin(*self._frames.popleft())
        if self._ending and not (self._over or self._turns or self._frames):
            self._stop()
            self._transport.close()
            if self._lost:
                self._finish()
        if self._incoming.waits_for_frames and len(self._frames) < _READ_AHEAD and not self._over:
            self._cut()
        else:
            self._read_or_not()

    def answer_soon(self) -> None:
        """Send what is answered: together with what is answered in this round of the loop."""
        turns = self._turns
        if len(turns) == 1:
            self.answer()
        elif turns and turns[0].is_over and not self._answers_soon:
            self._answers_soon = True
            self._loop.call_soon(self.answer)

    def answer(self) -> None:
        """Send what is answered, up to the first frame that is not, and begin the next one."""
        self._answers_soon = False
        turns = self._turns
        answers = []
        error = None
        while turns and turns[0].is_over and error is None:
            turn = turns.popleft()
            # The error's traceback leads back to the turn: together they would be a cycle.
            error, turn.error = turn.error, None
            if error is None:
                self._settle(turn)
                if turn.answer is not None:
                    answers.append(turn.answer)
        if answers and not self._lost:
            # One call of the system, however many there are: it costs as much as all else.
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self.held.size and self._may_write:
            self.held.shrink()
        if error is not None:
            self._fail(error)
            return
        self.last_used = time.monotonic()
        if self._frames or self._ending:
            self.go_on()

    def end(self) -> None:
        """Read no more, and close once what was read is answered."""
        self._ending = True
        self.go_on()

    def close(self) -> None:
        """Close now."""
        self._stop()
        self._transport.abort()

    def _may_begin(self, frame: bytes) -> bool:
        if self._over or not self._may_write:
            return False
        turns = self._turns
        if not turns:
            return True
        if not turns[-1].is_taken_in or len(turns) >= _MOST_AT_ONCE:
            return False
        queue = _QUEUES.get(frame[:2])
        return queue is not None and queue == _QUEUES.get(turns[-1].frame[:2])

    def _begin(self, frame: bytes, sent_after: int) -> None:
        turn = _Turn(self, frame)
        self._turns.append(turn)
        try:
            turn.running = self._session.begin(frame, sent_after, turn)
        # A bug of one API must not leave its client waiting, nor end the others.
        except Exception as error:
            turn.failed(error)

    def _settle(self, turn: _Turn) -> None:
        """Give back the room of a large frame: nothing is left to do for it."""
        if len(turn.frame) > FREE_BYTES:
            self._incoming.answered(turn.frame)

    def _fail(self, error: Exception) -> None:
        """Close: a frame has no answer."""
        self._stop()
        if self._lost:
            self._finish()
        elif isinstance(error, RefusedRequest):
            self._transport.write(error.answer)
            # Some clients do not read what came together with the end of the connection.
            self._loop.call_later(_TO_READ_S, self._refuse, str(error))
        elif isinstance(error, InvalidFrame):
            self._refuse(str(error))
        else:
            log.error("the connection of %s is closed", self.address.host, exc_info=error)
            self._transport.close()

    def _stop(self) -> None:
        """Begin nothing and answer nothing any more; a client that does not read is idle now."""
        self._over = True
        for turn in self._turns:
            if not turn.frame.startswith(_DONE_UNHEARD):
                turn.cancel()
        self._turns.clear()
        self._incoming.close()

    def _refuse(self, why: str) -> None:
        self._stop()
        self._say_closed(why)
        self._transport.close()

    def _end_log_in(self) -> None:
        if self._session.is_stranger:
            self._cut_off(f"its log-in was not done within {LOG_IN_S:g} s")

    def _cut_off(self, why: str) -> None:
        """Close now, whether the client reads what it was answered or not."""
        self._say_closed(why)
        self.close()

    def _say_closed(self, why: str) -> None:
        line = "the connection of %s is closed: %s"
        self._lines.say(logging.INFO, line, self.address.host, why)
