"""One client's connection: its requests are answered one at a time, in order, as by a broker.

A request starts when the response to the previous one has been written. At most `_READ_AHEAD`
frames are read ahead, so a client that sends faster than it is answered costs little memory. A
large request is read only when there is memory for it (`receiving`).

Requests for the same queue are pipelined: Produce, for the topic's writer, and Heartbeat,
OffsetCommit and LeaveGroup, for the `requests` table. The next one starts as soon as the previous
one is in the queue, where no request overtakes another. Otherwise each would wait for its own
commit: librdkafka sends a Produce for each partition, and many members may share a connection.

Source: Apache Kafka, SocketServer (a channel is muted while a request of it is in progress).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from group_coordinator.pipeline.gateway.memory_pool import ResponseMemory
from group_coordinator.pipeline.gateway.pending_request import PendingRequest
from group_coordinator.pipeline.gateway.receiving import FrameBuffer, ReceiveTimes
from group_coordinator.pipeline.gateway.wire import InvalidFrame, RefusedRequest, frame_size
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.schemas.apis import APIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.acceptor import ClientAddress, RateLimitedLogger
    from group_coordinator.pipeline.gateway.receiving import LoopTicks
    from group_coordinator.pipeline.gateway.session import Session

log = logging.getLogger(__name__)

_SIZE_BYTES = 4
# The queues of pipelined requests, by the first bytes of their frames.
_QUEUES = {api.frames_begin: api.queue for api in APIS.values() if api.queue is not None}
# Requests that run after their client has disconnected: Produce with acks=0, and the OffsetCommit
# and LeaveGroup of a consumer that closes during its join. Others are useless without a response.
_RUNS_AFTER_DISCONNECT = tuple(
    api.frames_begin for api in APIS.values() if api.runs_after_disconnect
)
# The socket is not read while at least this many frames wait.
_READ_AHEAD = 2
# The limit of a connection's requests in progress.
_MOST_AT_ONCE = 64
# How long a client may read no byte of a response before its connection is closed, s. Clients wait
# no longer for a response (request.timeout.ms of Kafka's clients).
UNREAD_LIMIT_S = 30.0
# The delay before a connection is closed after its last response, s.
_CLOSE_DELAY_S = 0.1
# The time limit for the TLS handshake and the SASL exchange together, s. Kafka's broker has no such
# setting. librdkafka has the same timeout (socket.connection.setup.timeout.ms).
AUTHENTICATION_LIMIT_S = 30.0


class Connection(asyncio.BufferedProtocol):
    """A client's socket, from `address`. `on_lost` is called when it has ended.

    All connections of a loop read into `read_buffer`, because allocating a buffer takes longer than
    reading a heartbeat. The object is created when the socket is accepted; `connection_made` comes
    after the TLS handshake, if any.
    """

    def __init__(
        self,
        session: Session,
        read_buffer: memoryview,
        address: ClientAddress,
        ticks: LoopTicks,
        logger: RateLimitedLogger,
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._session = session
        self._read_buffer = read_buffer
        self.address = address
        self._logger = logger
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._authenticate_until = self._loop.time() + AUTHENTICATION_LIMIT_S
        self._authentication_timer: asyncio.TimerHandle | None = None
        self._frame_buffer = FrameBuffer(
            address.memory, self._split_frames, self._abort_with_reason
        )
        self.response_memory = ResponseMemory(address.memory)
        # While a response is not written: the timer that checks whether the client has read of it.
        self._unread_timer: asyncio.TimerHandle | None = None
        # Frames that wait, each with the time after which it was sent, ms of `since_boot_ms`.
        self._frames: deque[tuple[bytes, int]] = deque()
        self._receive_times = ReceiveTimes(ticks)
        self._pending: deque[PendingRequest] = deque()
        self._reading = True
        self._is_writable = True
        # Whether `send_responses` is scheduled for this iteration of the loop.
        self._send_scheduled = False
        # `_draining`: no more frames are read. `_stopped`: none is started any more.
        self._draining = False
        self._stopped = True
        # Whether the socket is closed, so that responses are dropped.
        self._lost = False
        self.is_made = False
        self.last_used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for the handshake, for a response, or for memory."""
        return bool(self._pending) or self._frame_buffer.waits_for_memory or not self.is_made

    # --- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to answer requests, with a time limit for authentication."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_made, self._stopped = True, False
        if self._session.must_authenticate:
            self._authentication_timer = self._loop.call_at(
                self._authenticate_until, self._check_authenticated
            )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer into which asyncio reads."""
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Split the bytes read into frames, and start to answer them."""
        self._receive_times.on_read()
        # After a read that nearly fills the buffer, the socket may have more bytes. TLS passes on
        # slightly less than it has read.
        if 2 * nbytes >= len(self._read_buffer):
            self._receive_times.on_polled()
        data = bytes(self._read_buffer[:nbytes])
        size = nbytes - _SIZE_BYTES
        # The common case is one small frame, which is started at once.
        if (
            size <= FREE_BYTES
            and size <= self._session.largest_frame
            and frame_size(data) == size
            and not (self._frames or self._frame_buffer.buffer)
            and self._may_start(frame := data[_SIZE_BYTES:])
        ):
            self._start(frame, self._receive_times.sent_after)
        # Bytes that arrive after the last response are dropped.
        elif not self._stopped:
            self._frame_buffer.append(data)
            self._split_frames()

    def pause_writing(self) -> None:
        """Start no requests until the client has read its responses."""
        self._is_writable = False
        self._watch_unread(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Start requests again, because the client has read its responses."""
        self._is_writable = True
        self._stop_watching()
        self.response_memory.resize()
        self.start_next()

    def _watch_unread(self, unwritten: int) -> None:
        self.response_memory.resize(unwritten)
        self._unread_timer = self._loop.call_later(UNREAD_LIMIT_S, self._check_unread, unwritten)

    def _stop_watching(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _check_unread(self, before: int) -> None:
        unwritten = self._transport.get_write_buffer_size()
        if unwritten == before:
            self._abort_with_reason(f"it read no byte of its response for {UNREAD_LIMIT_S:g} s")
        else:
            # A slow client is not idle.
            self.last_used = time.monotonic()
            self._watch_unread(unwritten)

    def eof_received(self) -> bool:
        """Keep a half-closed connection open while requests run; TLS closes it in any case."""
        self._drop_requests()
        return not self._stopped

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Cancel the requests in flight, except those of APIs that run after a disconnect."""
        was_stopped = self._stopped
        self._lost = self._is_writable = True
        self._drop_requests()
        if was_stopped:
            self._release()

    def _drop_requests(self) -> None:
        """Cancel the requests of a disconnected client, except `_RUNS_AFTER_DISCONNECT`."""
        self._draining = True
        kept: deque[PendingRequest] = deque()
        for request in self._pending:
            if request.frame.startswith(_RUNS_AFTER_DISCONNECT):
                kept.append(request)
            else:
                request.cancel()
                self._release_frame(request)
        self._pending = kept
        self._frames = deque(
            item for item in self._frames if item[0].startswith(_RUNS_AFTER_DISCONNECT)
        )
        self.start_next()

    def _release(self) -> None:
        if self._authentication_timer is not None:
            self._authentication_timer.cancel()
        self._stop_watching()
        self.response_memory.close()
        self._on_lost(self)

    # --- reading ----------------------------------------------------------------------------------

    def _split_frames(self) -> None:
        """Split the received bytes into frames, until one is incomplete or waits for memory."""
        try:
            while (frame := self._next_frame()) is not None:
                self._frames.append((frame, self._receive_times.sent_after))
        except InvalidFrame as error:
            self._close_with_reason(str(error))
        else:
            self.start_next()

    def _next_frame(self) -> bytes | None:
        # A large frame must arrive within a deadline after it has memory. While frames wait, the
        # socket is not read, and no client could meet it.
        may_be_large = len(self._frames) < _READ_AHEAD
        return self._frame_buffer.next_frame(self._session.largest_frame, may_be_large)

    def _pause_or_resume(self) -> None:
        """Read the socket, unless frames wait, memory is missing, or the connection ends."""
        waits = self._frame_buffer.waits_for_memory or len(self._frames) >= _READ_AHEAD
        may_read = not (waits or self._draining)
        if may_read is not self._reading and not self._transport.is_closing():
            self._reading = may_read
            if may_read:
                self._receive_times.on_polled()
            (self._transport.resume_reading if may_read else self._transport.pause_reading)()

    # --- at work ----------------------------------------------------------------------------------

    def start_next(self) -> None:
        """Start the next frames that may start; close a draining connection after the last one."""
        while self._frames and self._may_start(self._frames[0][0]):
            self._start(*self._frames.popleft())
        if self._draining and not (self._stopped or self._pending or self._frames):
            self._stop()
            self._transport.close()
            if self._lost:
                self._release()
        if (
            self._frame_buffer.waits_for_frames
            and len(self._frames) < _READ_AHEAD
            and not self._stopped
        ):
            self._split_frames()
        else:
            self._pause_or_resume()

    def send_soon(self) -> None:
        """Send the responses that are ready, together with others of this loop iteration."""
        pending = self._pending
        if len(pending) == 1:
            self.send_responses()
        elif pending and pending[0].is_done and not self._send_scheduled:
            self._send_scheduled = True
            self._loop.call_soon(self.send_responses)

    def send_responses(self) -> None:
        """Send the responses before the first request without one, and start the next frames."""
        self._send_scheduled = False
        pending = self._pending
        frames = []
        error = None
        while pending and pending[0].is_done and error is None:
            request = pending.popleft()
            # The error's traceback refers to the request: keeping both would be a reference cycle.
            error, request.error = request.error, None
            if error is None:
                self._release_frame(request)
                if request.response is not None:
                    frames.append(request.response)
        if frames and not self._lost:
            # One system call for all responses, because it costs as much as everything else.
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self.response_memory.size and self._is_writable:
            self.response_memory.resize()
        if error is not None:
            self._fail(error)
            return
        self.last_used = time.monotonic()
        if self._frames or self._draining:
            self.start_next()

    def drain(self) -> None:
        """Stop reading, and close once the requests that were read are answered."""
        self._draining = True
        self.start_next()

    def close(self) -> None:
        """Close the connection at once."""
        self._stop()
        self._transport.abort()

    def _may_start(self, frame: bytes) -> bool:
        if self._stopped or not self._is_writable:
            return False
        pending = self._pending
        if not pending:
            return True
        if not pending[-1].is_queued or len(pending) >= _MOST_AT_ONCE:
            return False
        queue = _QUEUES.get(frame[:2])
        return queue is not None and queue == _QUEUES.get(pending[-1].frame[:2])

    def _start(self, frame: bytes, sent_after: int) -> None:
        request = PendingRequest(self, frame)
        self._pending.append(request)
        try:
            self._session.start(request, sent_after)
        # A bug in one API must neither leave its client without a result nor stop the gateway.
        except Exception as error:
            request.on_error(error)
        else:
            request.is_started = True

    def _release_frame(self, request: PendingRequest) -> None:
        if len(request.frame) > FREE_BYTES:
            self._frame_buffer.release(request.frame)

    def _fail(self, error: Exception) -> None:
        """Close the connection because of a request that has an error instead of a response."""
        self._stop()
        if self._lost:
            self._release()
        elif isinstance(error, RefusedRequest):
            self._transport.write(error.answer)
            # Some clients do not read a response that arrives together with the end of the stream.
            self._loop.call_later(_CLOSE_DELAY_S, self._close_with_reason, str(error))
        elif isinstance(error, InvalidFrame):
            self._close_with_reason(str(error))
        else:
            log.error("the connection of %s is closed", self.address.host, exc_info=error)
            self._transport.close()

    def _stop(self) -> None:
        self._stopped = True
        for request in self._pending:
            if not request.frame.startswith(_RUNS_AFTER_DISCONNECT):
                request.cancel()
        self._pending.clear()
        self._frame_buffer.close()

    def _close_with_reason(self, why: str) -> None:
        self._stop()
        self._log_closed(why)
        self._transport.close()

    def _check_authenticated(self) -> None:
        if self._session.must_authenticate:
            self._abort_with_reason(f"it did not authenticate within {AUTHENTICATION_LIMIT_S:g} s")

    def _abort_with_reason(self, why: str) -> None:
        self._log_closed(why)
        self.close()

    def _log_closed(self, why: str) -> None:
        line = "the connection of %s is closed: %s"
        self._logger.log(logging.INFO, line, self.address.host, why)
