"""Which requests a group has seen lately, so that a repeated event is answered once.

A producer that retries an append whose commit had gone through writes its events twice. The ids are
kept as 8-byte digests for a bounded time and up to a bounded number.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from sys import byteorder

from msgspec import Struct, field

_DIGEST_BYTES = 8
# So many chunks, and one, hold a window. A chunk for each batch would be 400 of them where batches
# take 150 ms, and a group that holds 400 takes 77 us to be decided instead of 14.
_CHUNKS = 8
# So many digests are each looked for in the bytes that are remembered, 3 us in 1,024 of them; more
# are worth a set of all, 33 us.
_FEW = 8


class RecentRequests(Struct, array_like=True):
    """Chunks of digests, oldest first, each with the time of its newest batch (ms)."""

    chunks: list[tuple[int, bytes]] = field(default_factory=list)

    def repeats(self, digests: list[int]) -> set[int]:
        """Those of these digests that are remembered."""
        known = b"".join([chunk for _, chunk in self.chunks])
        if len(digests) > _FEW:
            return set(memoryview(known).cast("Q")).intersection(digests)
        return {digest for digest in digests if _holds(known, digest)}

    @property
    def count(self) -> int:
        """How many digests are remembered."""
        return sum(len(chunk) for _, chunk in self.chunks) // _DIGEST_BYTES

    def remember(self, digests: list[int], now: int, window_ms: int, max_ids: int) -> None:
        """Add a batch's digests; forget what is too many, and chunks older than the window."""
        if digests:
            self._add(array("Q", digests).tobytes(), now, window_ms // _CHUNKS)
        self.forget(now - window_ms)
        excess = self.count - max_ids
        while excess > 0:
            at, chunk = self.chunks[0]
            count = len(chunk) // _DIGEST_BYTES
            if count <= excess:
                del self.chunks[0]
            else:
                self.chunks[0] = (at, chunk[excess * _DIGEST_BYTES :])
            excess -= count

    def _add(self, added: bytes, now: int, chunk_ms: int) -> None:
        """Put digests into the newest chunk, or begin one: each is for `chunk_ms` of the clock."""
        if self.chunks and chunk_ms:
            at, chunk = self.chunks[-1]
            if at // chunk_ms == now // chunk_ms:
                self.chunks[-1] = (max(at, now), chunk + added)
                return
        self.chunks.append((now, added))

    def forget(self, before: int) -> None:
        """Forget the chunks of that time (ms) and earlier."""
        keep = 0
        while keep < len(self.chunks) and self.chunks[keep][0] <= before:
            keep += 1
        if keep:
            del self.chunks[:keep]

    @property
    def newest(self) -> int | None:
        """The time of the newest batch remembered."""
        return self.chunks[-1][0] if self.chunks else None


def _holds(known: bytes, digest: int) -> bool:
    wanted = digest.to_bytes(_DIGEST_BYTES, byteorder)
    at = known.find(wanted)
    # Eight bytes may also be the end of one digest and the beginning of the next.
    while at > 0 and at % _DIGEST_BYTES:
        at = known.find(wanted, at + 1)
    return at >= 0


def digest(request_id: str) -> int:
    """The number of eight bytes that stands for a request id."""
    text = request_id.encode("utf-8", "surrogatepass")
    # In the machine's own order of bytes, so that `array` stores the digest as it is.
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), byteorder)
