"""One client's connection: its requests are answered one at a time, in order, as by a broker.

A request is started when the response to the previous one has been written. At most `_READ_AHEAD`
frames are read ahead; further bytes stay in the socket. So a client that sends faster than it is
answered costs little memory. A large request is read only when there is memory for it (`incoming`).

Requests of the same queue are pipelined. Such requests are Produce, queued for the topic's writer,
and Heartbeat, OffsetCommit and LeaveGroup, queued for the `requests` table. The next one starts
once the previous one is in the queue, where no request overtakes another. Responses have the order
of the requests.

Without pipelining, each request would wait for its own commit. librdkafka sends a Produce for each
partition, one after the other. A connection that many members share would have one heartbeat
answered in each of the coordinator's batches.

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
# The queues of pipelined requests, by the first bytes of their frames.
_QUEUES = {api.frames_begin: api.queue for api in APIS.values() if api.queue is not None}
# Requests that run after their client has disconnected: Produce with acks=0, and the OffsetCommit
# and LeaveGroup of a consumer that closes during its join. Others are useless without a response.
_DONE_UNHEARD = tuple(api.frames_begin for api in APIS.values() if api.runs_after_disconnect)
# The socket is not read while at least this many frames wait.
_READ_AHEAD = 2
# The limit of a connection's requests in progress.
_MOST_AT_ONCE = 64
# How long a client may read no byte of a response before its connection is closed, s. Clients wait
# no longer for a response (request.timeout.ms of Kafka's clients).
TAKE_S = 30.0
# The delay before a connection is closed after its last response, s.
_TO_READ_S = 0.1
# The time limit for the TLS handshake and the SASL exchange together, s. Kafka's broker has no such
# setting. librdkafka has the same timeout (socket.connection.setup.timeout.ms).
LOG_IN_S = 30.0


class _Turn:
    """A frame that is being answered, and its place in the order of responses.

    The running work refers to it for the callbacks. It drops its reference to the work with the
    result, so that there is no reference cycle. Otherwise the garbage collector would have to free
    each request, and with many members its pauses would delay responses.
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
        # During `begin`, the caller starts the next frame itself.
        if self.running is not None:
            self._connection.go_on()

    def answered(self, answer: bytes | None) -> None:
        self.is_over, self.answer, self.running = True, answer, None
        self._connection.answer_soon()

    def failed(self, error: Exception) -> None:
        self.is_over, self.error, self.running = True, error, None
        self._connection.answer()


class Connection(asyncio.BufferedProtocol):
    """A client's socket, from `address`. `on_lost` is called when it has ended.

    Bytes are read into `arrivals`, a buffer that the connections of a loop share, because
    allocating a buffer takes longer than reading a heartbeat. The object is created in the loop
    when the socket is accepted. The TLS handshake, if any, comes before `connection_made`.
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
        # While a response is not written: the timer that checks whether the client has read of it.
        self._taking: asyncio.TimerHandle | None = None
        # Frames that wait, each with the time after which it was sent, ms of `since_boot_ms`.
        self._frames: deque[tuple[bytes, int]] = deque()
        self._sent = SentTimes(polls)
        self._turns: deque[_Turn] = deque()
        self._reading = True
        self._may_write = True
        # Whether `answer` is scheduled for this iteration of the loop.
        self._answers_soon = False
        # `_ending`: no more frames are read. `_over`: none is started any more.
        self._ending = False
        self._over = True
        # Whether the socket is closed, so that responses are dropped.
        self._lost = False
        self.is_made = False
        self.last_used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for the handshake, for a response, or for memory."""
        return bool(self._turns) or self._incoming.waits_for_room or not self.is_made

    # --- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to answer requests, with a time limit for authentication."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_made, self._over = True, False
        if self._session.is_stranger:
            self._log_in = self._loop.call_at(self._log_in_until, self._end_log_in)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer into which asyncio reads."""
        return self._arrivals

    def buffer_updated(self, nbytes: int) -> None:
        """Split the bytes read into frames, and start to answer them."""
        self._sent.read()
        # After a read that nearly fills the buffer, the socket may have more bytes. TLS passes on
        # slightly less than it has read.
        if 2 * nbytes >= len(self._arrivals):
            self._sent.polled()
        data = bytes(self._arrivals[:nbytes])
        size = nbytes - _SIZE_BYTES
        # The common case is one small frame, which is started at once.
        if (
            size <= FREE_BYTES
            and size <= self._session.largest_frame
            and frame_size(data) == size
            and not (self._frames or self._incoming.buffer)
            and self._may_begin(frame := data[_SIZE_BYTES:])
        ):
            self._begin(frame, self._sent.after)
        # Bytes that arrive after the last response are dropped.
        elif not self._over:
            self._incoming.take_in(data)
            self._cut()

    def pause_writing(self) -> None:
        """Pause until the client has read its responses."""
        self._may_write = False
        self._watch(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Resume answering, because the client has read its responses."""
        self._may_write = True
        self._watch_no_more()
        self.held.shrink()
        self.go_on()

    def _watch(self, unwritten: int) -> None:
        """Count the unwritten bytes, and check later whether the client has read some of them."""
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
            # A slow client is not idle.
            self.last_used = time.monotonic()
            self._watch(unwritten)

    def eof_received(self) -> bool:
        """Keep the transport open while requests run. Over TLS it closes in any case."""
        self._leave()
        return not self._over

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Finish the requests that run after a disconnect, and release the rest."""
        was_over = self._over
        self._lost = self._may_write = True
        self._leave()
        if was_over:
            self._finish()

    def _leave(self) -> None:
        """Cancel the requests of a disconnected client, except those that run nevertheless."""
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
        """Split the bytes received into frames, until the next frame must wait for memory."""
        try:
            while (frame := self._next_frame()) is not None:
                self._frames.append((frame, self._sent.after))
        except InvalidFrame as error:
            self._refuse(str(error))
        else:
            self.go_on()

    def _next_frame(self) -> bytes | None:
        # A frame with memory has a deadline, which no client could meet while the socket is not
        # read. So a large frame starts only while fewer frames wait.
        reads_on = len(self._frames) < _READ_AHEAD
        return self._incoming.next_frame(self._session.largest_frame, reads_on)

    def _read_or_not(self) -> None:
        """Read the socket, unless frames wait, memory is missing, or the connection ends."""
        waits = self._incoming.waits_for_room or len(self._frames) >= _READ_AHEAD
        wanted = not (waits or self._ending)
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._sent.polled()
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # --- at work ----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Start the next frames that may start; close after the last one if the connection ends."""
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
        """Send responses, together with the others of this iteration of the loop."""
        turns = self._turns
        if len(turns) == 1:
            self.answer()
        elif turns and turns[0].is_over and not self._answers_soon:
            self._answers_soon = True
            self._loop.call_soon(self.answer)

    def answer(self) -> None:
        """Send the responses up to the first frame without one, and start the next frames."""
        self._answers_soon = False
        turns = self._turns
        answers = []
        error = None
        while turns and turns[0].is_over and error is None:
            turn = turns.popleft()
            # The error's traceback refers to the turn, so keeping both would be a reference cycle.
            error, turn.error = turn.error, None
            if error is None:
                self._settle(turn)
                if turn.answer is not None:
                    answers.append(turn.answer)
        if answers and not self._lost:
            # One system call for all responses, because it costs as much as everything else.
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
        """Stop reading, and close once the frames that were read are answered."""
        self._ending = True
        self.go_on()

    def close(self) -> None:
        """Close the connection at once."""
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
        # A bug in one API must neither leave its client without a result nor stop the gateway.
        except Exception as error:
            turn.failed(error)

    def _settle(self, turn: _Turn) -> None:
        """Release the memory of a large frame, which is done."""
        if len(turn.frame) > FREE_BYTES:
            self._incoming.answered(turn.frame)

    def _fail(self, error: Exception) -> None:
        """Close the connection after a frame without a response."""
        self._stop()
        if self._lost:
            self._finish()
        elif isinstance(error, RefusedRequest):
            self._transport.write(error.answer)
            # Some clients do not read a response that arrives together with the end of the stream.
            self._loop.call_later(_TO_READ_S, self._refuse, str(error))
        elif isinstance(error, InvalidFrame):
            self._refuse(str(error))
        else:
            log.error("the connection of %s is closed", self.address.host, exc_info=error)
            self._transport.close()

    def _stop(self) -> None:
        """Start and answer no more requests. From now on, the connection may count as idle."""
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
        """Close at once, even if the client has not read its responses."""
        self._say_closed(why)
        self.close()

    def _say_closed(self, why: str) -> None:
        line = "the connection of %s is closed: %s"
        self._lines.say(logging.INFO, line, self.address.host, why)
