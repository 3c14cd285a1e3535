"""One client's connection: its frames are answered in order, one at a time, as a broker does.

A request is read when the answer to the one before has been written. Until then the client's bytes
wait in its socket: a client that sends faster than it is answered costs no memory here.

Source: Apache Kafka, SocketServer (a channel is muted while a request of it is in progress).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from pipeline.gateway.fields import InvalidFrame
from pipeline.gateway.wire import Refused, frame_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.gateway.session import Session

log = logging.getLogger(__name__)

_SIZE_BYTES = 4
# Frames that are read ahead; the socket is not read while there are so many.
_READ_AHEAD = 2
# The time between a last answer and the end of its connection.
_TO_READ_S = 0.1


class Connection(asyncio.Protocol):
    """A client's socket. `on_made` may refuse it by returning False; `on_lost` hears of its end."""

    def __init__(
        self,
        session: Session,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._session = session
        self._on_made = on_made
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._frames: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._reading = True
        self._ending = False
        self._task: asyncio.Task[None] | None = None
        self.is_busy = False
        self.last_used = time.monotonic()

    # --- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to answer."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "unknown"
        if not self._on_made(self):
            self._transport.abort()
            return
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and cut them into frames."""
        self._buffer += data
        while (size := frame_size(self._buffer)) is not None:
            if not 0 <= size <= self._session.largest_frame:
                self._refuse(
                    f"a frame of {size} bytes: more than {self._session.largest_frame} "
                    "(socket.request.max.bytes; before authentication "
                    "sasl.server.max.receive.size), or no Kafka client"
                )
                return
            end = _SIZE_BYTES + size
            if len(self._buffer) < end:
                break
            self._frames.append(bytes(self._buffer[_SIZE_BYTES:end]))
            del self._buffer[:end]
            self._arrived.set()
        if self._reading and len(self._frames) >= _READ_AHEAD:
            self._reading = False
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Write no more until the client has read."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Stop: nobody waits for the answers any more."""
        if self._task is not None:
            self._task.cancel()
            self._on_lost(self)

    # --- at work ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Close once what is in flight is answered."""
        self._ending = True
        self._arrived.set()

    def close(self) -> None:
        """Close now."""
        self._transport.close()

    def _refuse(self, why: str) -> None:
        log.info("the connection of %s is closed: %s", self.host, why)
        self._transport.close()

    async def _serve(self) -> None:
        try:
            while (frame := await self._next_frame()) is not None:
                self.is_busy = True
                answer = await self._session.answer(frame, self.host)
                self.is_busy = False
                self.last_used = time.monotonic()
                if answer is not None:
                    self._transport.write(answer)
                    if not self._may_write.is_set():
                        await self._may_write.wait()
            self._transport.close()
        except Refused as error:
            self._transport.write(error.answer)
            # Some clients do not read what came together with the end of the connection.
            await asyncio.sleep(_TO_READ_S)
            self._refuse(str(error))
        except InvalidFrame as error:
            self._refuse(str(error))
        # A bug of one API must not leave its client waiting, nor end the others.
        except Exception:
            log.exception("the connection of %s is closed", self.host)
            self._transport.close()

    async def _next_frame(self) -> bytes | None:
        while not self._frames:
            if self._ending:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        if not self._reading and len(self._frames) < _READ_AHEAD:
            self._reading = True
            self._transport.resume_reading()
        return frame
