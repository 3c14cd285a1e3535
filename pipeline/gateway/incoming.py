"""The received bytes of a connection that are not split into frames yet.

A frame of more than `FREE_BYTES` is read only once the connection has memory for all of it
(`room`). If bytes were counted as they arrive, parts of many frames could fill the memory, and no
frame would ever be complete. So a client must send a frame within `ARRIVE_S` after it has memory.

Source: Apache Kafka, NetworkReceive and SimpleMemoryPool (KIP-72).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from group_coordinator.pipeline.gateway.wire import InvalidFrame, frame_size
from group_coordinator.pipeline.gateway_settings import FREE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.room import Share

_SIZE_BYTES = 4
# The time limit for a frame to arrive once it has memory, s. Clients wait no longer for a response
# (request.timeout.ms of Kafka's clients).
ARRIVE_S = 30.0
# The first bytes of a TLS client: a handshake record. As a frame size they would be 369 MB.
_TLS_HELLO = b"\x16\x03"
_QUOTED_BYTES = 16


class Incoming:
    """The bytes of one connection that are not split into frames yet, in `buffer`.

    `room_granted` is called when the frame that waited has memory. `too_late` is called with the
    reason when a frame with memory did not arrive in time.
    """

    def __init__(
        self,
        memory: Share,
        room_granted: Callable[[], None],
        too_late: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._room_granted = room_granted
        self._too_late = too_late
        self.buffer = bytearray()
        # Whether the next frame waits for earlier frames, or for memory. `_deadline` runs from the
        # time at which it has memory.
        self.waits_for_frames = self.waits_for_room = False
        self._deadline: asyncio.TimerHandle | None = None
        # The memory that this connection has taken, bytes.
        self._taken = 0

    def take_in(self, data: bytes) -> None:
        """Append bytes that have arrived."""
        self.buffer += data

    def next_frame(self, largest: int, may_be_large: bool) -> bytes | None:
        """Remove and return the next frame; None if it is not complete. Raises InvalidFrame.

        A frame of more than `largest` bytes is invalid. A frame of more than `FREE_BYTES` takes
        memory, or waits for it. While `may_be_large` is false, it waits for the earlier frames.
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
                f"a frame of {size} bytes: more than {largest} (socket.request.max.bytes; before "
                "authentication sasl.server.max.receive.size), or no Kafka client"
            )
        if size > FREE_BYTES and self._deadline is None:
            if self.waits_for_room:
                return None
            if not may_be_large:
                self.waits_for_frames = True
                return None
            if not self._memory.take(size, self._granted):
                self.waits_for_room = True
                return None
            self._room_taken(size)
        end = _SIZE_BYTES + size
        if len(buffer) < end:
            return None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        frame = bytes(memoryview(buffer)[_SIZE_BYTES:end])
        del buffer[:end]
        return frame

    def answered(self, frame: bytes) -> None:
        """Release the memory of a large frame that is done."""
        self._taken -= len(frame)
        self._memory.give_back(len(frame))

    def close(self) -> None:
        """Release all memory, and drop the bytes, because nothing more is read."""
        if self.waits_for_room:
            self.waits_for_room = False
            self._memory.withdraw(self._size(), self._granted)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        taken, self._taken = self._taken, 0
        self._memory.give_back(taken)
        self.waits_for_frames = False
        self.buffer.clear()

    def _granted(self) -> None:
        self.waits_for_room = False
        self._room_taken(self._size())
        self._room_granted()

    def _room_taken(self, size: int) -> None:
        self._taken += size
        why = f"a frame of {size} bytes did not come within {ARRIVE_S:g} s"
        self._deadline = asyncio.get_running_loop().call_later(ARRIVE_S, self._too_late, why)

    def _size(self) -> int:
        return cast(int, frame_size(self.buffer))
