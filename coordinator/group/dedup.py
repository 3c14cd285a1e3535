"""Which requests a group has seen lately, so that a repeated event is answered once.

A producer that retries an append whose commit had gone through writes its events twice. The ids are
kept as 8-byte digests, a chunk a batch, for a bounded time and up to a bounded number.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from sys import byteorder

from msgspec import Struct, field

_DIGEST_BYTES = 8


class RecentRequests(Struct, array_like=True):
    """Chunks of digests, oldest first, each with the time of its batch (ms)."""

    chunks: list[tuple[int, bytes]] = field(default_factory=list)

    def known(self) -> set[int]:
        """The digests of all requests remembered."""
        # 1,024 of them in 30 us; a slice of bytes for each takes 100.
        return set(memoryview(b"".join([chunk for _, chunk in self.chunks])).cast("Q"))

    def remember(self, digests: list[int], now: int, window_ms: int, max_ids: int) -> None:
        """Add a batch's digests; forget what is older than the window or too many."""
        if digests:
            self.chunks.append((now, array("Q", digests).tobytes()))
        self.forget(now - window_ms)
        excess = sum(len(chunk) for _, chunk in self.chunks) // _DIGEST_BYTES - max_ids
        while excess > 0:
            at, chunk = self.chunks[0]
            count = len(chunk) // _DIGEST_BYTES
            if count <= excess:
                del self.chunks[0]
            else:
                self.chunks[0] = (at, chunk[excess * _DIGEST_BYTES :])
            excess -= count

    def forget(self, before: int) -> None:
        """Forget the batches of that time (ms) and earlier."""
        keep = 0
        while keep < len(self.chunks) and self.chunks[keep][0] <= before:
            keep += 1
        if keep:
            del self.chunks[:keep]

    @property
    def newest(self) -> int | None:
        """The time of the newest batch remembered."""
        return self.chunks[-1][0] if self.chunks else None


def digest(request_id: str) -> int:
    """The number of eight bytes that stands for a request id."""
    text = request_id.encode("utf-8", "surrogatepass")
    # In the machine's own order of bytes, so that `array` stores the digest as it is.
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), byteorder)
