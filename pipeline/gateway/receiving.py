"""The received bytes of a connection: frames within the memory limit, and when they were sent.

A frame of more than `FREE_BYTES` is read only once the connection has memory for all of it
(`memory_pool`), and must then arrive within `FRAME_LIMIT_S`. If bytes were counted as they arrive,
parts of many frames could fill the memory, and none would ever be complete.

A gateway that was suspended reads old frames when it resumes, although their client may have
switched to another gateway. So `ReceiveTimes` has a lower bound of the time at which a frame was
sent: the last poll of its socket that found nothing.

The event loop records a time every `_TICK_EVERY_S`, its ticks. Between two ticks it polls its
sockets and handles what the poll found. So a frame that is read after tick N was sent after tick
N-1, provided that its socket stayed registered with the selector.

Source: Apache Kafka, NetworkReceive and SimpleMemoryPool (KIP-72).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from group_coordinator.pipeline.clock import since_boot_ms
from group_coordinator.pipeline.gateway.wire import InvalidFrame, frame_size
from group_coordinator.pipeline.gateway_settings import FREE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.memory_pool import AddressQuota

_SIZE_BYTES = 4
# The time limit for a frame to arrive once it has memory, s. Clients wait no longer for a response
# (request.timeout.ms of Kafka's clients).
FRAME_LIMIT_S = 30.0
# The first bytes of a TLS client: a handshake record. As a frame size they would be 369 MB.
_TLS_HELLO = b"\x16\x03"
_QUOTED_BYTES = 16
# The time between two ticks, s. A frame is dated too early by at most two of them, unless the loop
# is blocked.
_TICK_EVERY_S = 0.25


class FrameBuffer:
    """The bytes of one connection that are not split into frames yet, in `buffer`.

    `on_memory` is called when the frame that waited has memory. `on_timeout` is called with the
    reason when a frame with memory did not arrive in time.
    """

    def __init__(
        self,
        memory: AddressQuota,
        on_memory: Callable[[], None],
        on_timeout: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._on_memory = on_memory
        self._on_timeout = on_timeout
        self.buffer = bytearray()
        # Whether the next frame waits for earlier frames, or for memory. `_deadline` runs from the
        # time at which it has memory.
        self.waits_for_frames = self.waits_for_memory = False
        self._deadline: asyncio.TimerHandle | None = None
        # The memory that this connection has taken, bytes.
        self._taken = 0

    def append(self, data: bytes) -> None:
        """Append bytes that have arrived."""
        self.buffer += data

    def next_frame(self, largest: int, may_be_large: bool) -> bytes | None:
        """Remove and return the next frame; None if it is not complete. Raises InvalidFrame.

        A frame of more than `largest` bytes is invalid. A frame of more than `FREE_BYTES` takes
        memory, or waits for it; without `may_be_large` it waits for the earlier frames.
        """
        self.waits_for_frames = False
        buffer = self.buffer
        size = frame_size(buffer)
        if size is None:
            return None
        if buffer.startswith(_TLS_HELLO):
            hello = bytes(buffer[:_QUOTED_BYTES])
            raise InvalidFrame(f"a TLS hello came to a listener without TLS: {hello!r}")
        if not 0 <= size <= largest:
            raise InvalidFrame(
                f"a frame of {size} bytes: the limit is {largest} (socket.request.max.bytes; "
                "before authentication sasl.server.max.receive.size), or it is no Kafka client"
            )
        if size > FREE_BYTES and self._deadline is None:
            if self.waits_for_memory:
                return None
            if not may_be_large:
                self.waits_for_frames = True
                return None
            if not self._memory.try_acquire(size, self._on_acquired):
                self.waits_for_memory = True
                return None
            self._start_deadline(size)
        end = _SIZE_BYTES + size
        if len(buffer) < end:
            return None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        frame = bytes(memoryview(buffer)[_SIZE_BYTES:end])
        del buffer[:end]
        return frame

    def release(self, frame: bytes) -> None:
        """Release the memory of a large frame that was answered."""
        self._taken -= len(frame)
        self._memory.release(len(frame))

    def close(self) -> None:
        """Release all memory, and drop the bytes, because nothing more is read."""
        if self.waits_for_memory:
            self.waits_for_memory = False
            self._memory.withdraw(self._size(), self._on_acquired)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        taken, self._taken = self._taken, 0
        self._memory.release(taken)
        self.waits_for_frames = False
        self.buffer.clear()

    def _on_acquired(self) -> None:
        self.waits_for_memory = False
        self._start_deadline(self._size())
        self._on_memory()

    def _start_deadline(self, size: int) -> None:
        self._taken += size
        why = f"a frame of {size} bytes did not arrive within {FRAME_LIMIT_S:g} s"
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(FRAME_LIMIT_S, self._on_timeout, why)

    def _size(self) -> int:
        return cast(int, frame_size(self.buffer))


class LoopTicks:
    """The last two times that an event loop recorded, for `ReceiveTimes`; ms of `since_boot_ms`."""

    def __init__(self, now_ms: Callable[[], int] = since_boot_ms) -> None:
        self._now_ms = now_ms
        self._last = now_ms()
        # A frame that is handled now was sent after this time, if its socket was polled during the
        # last two ticks.
        self.empty_at = self._last
        self.count = 0

    def tick(self) -> None:
        """Record the present time."""
        self.empty_at, self._last = self._last, self._now_ms()
        self.count += 1

    async def follow(self) -> None:
        """Record the time every `_TICK_EVERY_S` seconds, until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(_TICK_EVERY_S)


class ReceiveTimes:
    """A lower bound, `sent_after`, of the time at which the bytes read from one socket were sent.

    The bound advances while the event loop polls the socket.
    """

    __slots__ = ("_polled_from", "_ticks", "sent_after")

    def __init__(self, ticks: LoopTicks) -> None:
        self._ticks = ticks
        # The last bytes read were sent after this time, ms of `since_boot_ms`.
        self.sent_after = ticks.empty_at
        self.on_polled()

    def on_polled(self) -> None:
        """Note that the socket is polled from now on.

        Bytes that are in it already may be as old as the last bytes read.
        """
        self._polled_from = self._ticks.count + 2

    def on_read(self) -> None:
        """Note that bytes were read from the socket, and update `sent_after`."""
        if self._ticks.count >= self._polled_from:
            self.sent_after = self._ticks.empty_at
