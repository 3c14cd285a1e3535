"""Which requests a group has seen lately, so that a repeated request is decided and answered once.

A producer that retries an append whose commit had gone through writes its events twice. A group
remembers request ids as 8-byte digests, in two memories:

* `RequestWindow` holds every request of the window whose second decision could undo what was
  decided in between: a repeated commit would set an offset back. It forgets no request before the
  window is over. While it is full, no further request of this kind is decided
  (`coordinator.group.batch`), so that its size is bounded.
* `RecentRequests` holds the last requests of all kinds. To decide a heartbeat or a fetch twice
  changes nothing, so no more of them need to be remembered: 5,000 members that heartbeat every 3 s
  would make 100,000 digests a minute, to be written with the group's state after every batch.

Where requests are signed, a request is known by its id and its signer: whoever may append rows can
guess or copy an id, and its row must not be taken for the signed one, nor the signed one for its.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection
from functools import cache
from hashlib import blake2b
from sys import byteorder
from typing import TypeVar

from msgspec import Struct, field

# How many digests a group's `RecentRequests` holds.
MAX_RECENT = 1024

_DIGEST_BYTES = 8
# A window is divided into this many chunks of time. With one a batch, short batches would make
# hundreds, and every decision of a group would read all of them.
_CHUNKS = 8
# Up to this many digests are searched one by one in the bytes; for more, a set of all is made
# first.
_FEW = 8
_Packed = TypeVar("_Packed", bytes, memoryview)
# The time of the newest digest (ms), and the digests, ascending.
Run = tuple[int, memoryview]


class RequestWindow(Struct, array_like=True):
    """Every digest of the window, in sorted runs, oldest first.

    A batch's digests are a new run. Runs of the same chunk of time are merged while the newer is at
    least half as large as the older, and all of them once the chunk is over. So there are at most 9
    runs, plus the logarithm of the newest chunk's size.
    """

    runs: list[Run] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many digests are remembered."""
        return sum(len(run) for _, run in self.runs) // _DIGEST_BYTES

    @property
    def newest(self) -> int | None:
        """The time of the newest digest, ms; None if there is none."""
        return self.runs[-1][0] if self.runs else None

    def __contains__(self, digest: int) -> bool:
        for _, packed in self.runs:
            run = packed.cast("Q")
            at = bisect_left(run, digest)
            if at < len(run) and run[at] == digest:
                return True
        return False

    def remember(self, digests: Collection[int], now: int, window_ms: int) -> None:
        """Add a batch's digests, and forget the runs that are older than the window."""
        self.forget(now, window_ms)
        if digests and window_ms > 0:
            chunk_ms = max(1, window_ms // _CHUNKS)
            if self.runs and self.runs[-1][0] // chunk_ms != now // chunk_ms:
                while self._ends_in_one_chunk(chunk_ms):
                    self._merge()
            self.runs.append((now, _pack(digests)))
            while self._ends_in_one_chunk(chunk_ms) and self._newer_is_half_as_large():
                self._merge()

    def forget(self, now: int, window_ms: int) -> None:
        """Forget the runs that are older than the window that ends at `now`."""
        _forget(self.runs, now, window_ms)

    def _ends_in_one_chunk(self, chunk_ms: int) -> bool:
        if len(self.runs) < 2:
            return False
        (older, _), (newer, _) = self.runs[-2:]
        return older // chunk_ms == newer // chunk_ms

    def _newer_is_half_as_large(self) -> bool:
        return 2 * len(self.runs[-1][1]) >= len(self.runs[-2][1])

    def _merge(self) -> None:
        at, newer = self.runs.pop()
        _, older = self.runs[-1]
        self.runs[-1] = (at, _pack([*older.cast("Q"), *newer.cast("Q")]))


def _pack(digests: Collection[int]) -> memoryview:
    return memoryview(array("Q", sorted(digests)).tobytes())


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
        """Add a batch's digests; forget what exceeds `max_ids`, and chunks before the window."""
        self.forget(now, window_ms)
        if digests and window_ms > 0:
            self._add(array("Q", digests).tobytes(), now, max(1, window_ms // _CHUNKS))
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
        if self.chunks:
            at, chunk = self.chunks[-1]
            if at // chunk_ms == now // chunk_ms:
                self.chunks[-1] = (now, chunk + added)
                return
        self.chunks.append((now, added))

    def forget(self, now: int, window_ms: int) -> None:
        """Forget the chunks that are older than the window that ends at `now`."""
        _forget(self.chunks, now, window_ms)

    @property
    def newest(self) -> int | None:
        """The time of the newest batch remembered."""
        return self.chunks[-1][0] if self.chunks else None


def _forget(chunks: list[tuple[int, _Packed]], now: int, window_ms: int) -> None:
    """Delete the chunks that are older than the window that ends at `now`; the oldest come first.

    A chunk of a time after `now` was made before the clock was set back. It is dated `now`, since
    otherwise a clock that was ahead by a day would keep it for a day.
    """
    gone = 0
    while gone < len(chunks) and chunks[gone][0] <= now - window_ms:
        gone += 1
    del chunks[:gone]
    if chunks and chunks[-1][0] > now:
        chunks[:] = [(min(at, now), packed) for at, packed in chunks]


def _holds(known: bytes, digest: int) -> bool:
    wanted = digest.to_bytes(_DIGEST_BYTES, byteorder)
    at = known.find(wanted)
    # Eight bytes may also be the end of one digest and the beginning of the next.
    while at > 0 and at % _DIGEST_BYTES:
        at = known.find(wanted, at + 1)
    return at >= 0


def marks_of(
    request_id: str, signer: str | None, signers: Collection[str] | None
) -> tuple[int, ...]:
    """The digest that a request is remembered by, and the others by which it is known already.

    `signer` is the name of the key that signed it, None for none, and `signers` are all of them,
    None where nothing is signed. An id that stands for itself is one of a time without keys, of an
    earlier release, or of `responses`, which have no signers: it is everybody's. An id that was
    signed is known to whoever did not sign, but not the other way round.
    """
    of_anybody = digest(request_id)
    if signers is None:
        return (of_anybody,)
    if signer is not None:
        return of_anybody ^ _mask(signer), of_anybody
    return of_anybody ^ _mask(None), of_anybody, *(of_anybody ^ _mask(each) for each in signers)


@cache
def _mask(signer: str | None) -> int:
    """What turns a request's digest into that of its signer, without a second hash of the id."""
    return digest("nobody" if signer is None else f"signer {signer}")


def digest(request_id: str) -> int:
    """The number of eight bytes that stands for a request id."""
    # In the machine's own order of bytes, so that `array` stores the digest as it is.
    return int.from_bytes(digest_bytes(request_id), byteorder)


def digest_bytes(request_id: str) -> bytes:
    """The eight bytes that stand for a request id."""
    text = request_id.encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


def digests_of(packed: bytes) -> list[int]:
    """The numbers of digests that were written one after the other."""
    return memoryview(packed).cast("Q").tolist()
