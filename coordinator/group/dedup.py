"""The deduplication window of a group: a repeated request is decided and answered once.

A producer that retries an append although its commit succeeded writes its events twice. A group
remembers request ids as 8-byte digests, in two structures:

* `RequestWindow` holds every request of the window that is not safe to repeat: a repeated commit
  would set an offset back. While it is full, no further request of this kind is decided
  (`coordinator.group.batch`), so its size is bounded.
* `RecentRequests` holds the last requests of all kinds. A bounded number is enough, because
  repeating a heartbeat or a fetch changes nothing. All of a window would be too many: 5,000 members
  that heartbeat every 3 s send 100,000 a minute, and the digests are stored after every batch.

Where requests are signed, a request's digest depends on its id and its signer: any process that may
append rows can copy an id, and its row must not replace the signed request.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection
from functools import cache
from hashlib import blake2b
from sys import byteorder
from typing import Generic, TypeVar

from msgspec import Struct, field

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.schemas.decoding import Malformed
from group_coordinator.schemas.messages import RequestEvent

# How many digests a group's `RecentRequests` holds.
MAX_RECENT = 1024

_DIGEST_BYTES = 8
# A window is divided into this many chunks of time. With one chunk per batch, short batches would
# make hundreds of chunks, and every decision of a group would read all of them.
_CHUNKS = 8
# Up to this many digests are searched one by one in the packed bytes; more are searched in a set.
_FEW = 8
_Packed = TypeVar("_Packed", bytes, memoryview)


class DigestRuns(Struct, Generic[_Packed], array_like=True):
    """Packed digests in runs, oldest first, each with the time of its newest digest (ms)."""

    runs: list[tuple[int, _Packed]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many digests are remembered."""
        return sum(len(run) for _, run in self.runs) // _DIGEST_BYTES

    @property
    def newest(self) -> int | None:
        """The time of the newest digest (ms), None if there are no digests."""
        return self.runs[-1][0] if self.runs else None

    def forget(self, now: int, window_ms: int) -> None:
        """Delete the runs that are older than the window, which ends at `now`.

        A run with a time after `now` is redated to `now`: its clock was set back since, and a clock
        that was a day ahead would keep the run for a day.
        """
        runs = self.runs
        gone = 0
        while gone < len(runs) and runs[gone][0] <= now - window_ms:
            gone += 1
        del runs[:gone]
        if runs and runs[-1][0] > now:
            runs[:] = [(min(at, now), packed) for at, packed in runs]


class RequestWindow(DigestRuns[memoryview], array_like=True):
    """Every digest of the window, in sorted runs, oldest first.

    The digests of a batch become a new run. Runs of the same chunk of time (an eighth of the
    window) are merged while the newer is at least half as large as the older; when the chunk ends,
    all of its runs are merged. So there are at most 9 runs, plus the logarithm of the newest
    chunk's size.
    """

    def holds_any(self, digests: tuple[int, ...]) -> bool:
        """Return whether one of the digests is remembered."""
        for _, packed in self.runs:
            run = packed.cast("Q")
            for digest in digests:
                place = bisect_left(run, digest)
                if place < len(run) and run[place] == digest:
                    return True
        return False

    def remember(self, digests: Collection[int], now: int, window_ms: int) -> None:
        """Add the digests of a batch, and delete the runs that are older than the window."""
        self.forget(now, window_ms)
        if digests and window_ms > 0:
            chunk_ms = max(1, window_ms // _CHUNKS)
            if self.runs and self.runs[-1][0] // chunk_ms != now // chunk_ms:
                while self._ends_in_one_chunk(chunk_ms):
                    self._merge()
            self.runs.append((now, _pack(digests)))
            while self._ends_in_one_chunk(chunk_ms) and self._newer_is_half_as_large():
                self._merge()

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


class RecentRequests(DigestRuns[bytes], array_like=True):
    """The digests of the last requests of all kinds, with a run for each chunk of time."""

    def repeats(self, digests: list[int]) -> set[int]:
        """Return those of `digests` that are remembered."""
        known = b"".join([run for _, run in self.runs])
        if len(digests) > _FEW:
            return set(memoryview(known).cast("Q")).intersection(digests)
        return {digest for digest in digests if _holds(known, digest)}

    def remember(self, digests: list[int], now: int, window_ms: int, max_ids: int) -> None:
        """Add the digests of a batch; delete old runs, and the oldest digests over `max_ids`."""
        self.forget(now, window_ms)
        if digests and window_ms > 0:
            self._add(array("Q", digests).tobytes(), now, max(1, window_ms // _CHUNKS))
        excess = self.count - max_ids
        while excess > 0:
            at, run = self.runs[0]
            count = len(run) // _DIGEST_BYTES
            if count <= excess:
                del self.runs[0]
            else:
                self.runs[0] = (at, run[excess * _DIGEST_BYTES :])
            excess -= count

    def _add(self, added: bytes, now: int, chunk_ms: int) -> None:
        if self.runs:
            at, run = self.runs[-1]
            if at // chunk_ms == now // chunk_ms:
                self.runs[-1] = (now, run + added)
                return
        self.runs.append((now, added))


def _holds(known: bytes, digest: int) -> bool:
    wanted = digest.to_bytes(_DIGEST_BYTES, byteorder)
    at = known.find(wanted)
    # A match may span the end of one digest and the beginning of the next.
    while at > 0 and at % _DIGEST_BYTES:
        at = known.find(wanted, at + 1)
    return at >= 0


def dedup_keys(
    request_id: str, signer: str | None, signers: Collection[str] | None
) -> tuple[int, ...]:
    """Return the digest under which a request is remembered, then further digests that it repeats.

    `signer` is the name of the key that signed the request, None if it is unsigned. `signers` are
    the names of all keys, None where requests are not signed. The plain digest of the id matches
    any signer: it comes from `responses`, an earlier release, or a time without keys. A signed
    digest also matches unsigned requests; an unsigned digest never matches a signed one.
    """
    any_signer = digest(request_id)
    if signers is None:
        return (any_signer,)
    if signer is not None:
        return any_signer ^ _mask(signer), any_signer
    return any_signer ^ _mask(None), any_signer, *(any_signer ^ _mask(name) for name in signers)


@cache
def _mask(signer: str | None) -> int:
    """Return the number that, by XOR, turns an id's digest into its key: the id is hashed once."""
    return digest("nobody" if signer is None else f"signer {signer}")


def digest(request_id: str) -> int:
    """Return the 8-byte digest of a request id as an integer."""
    text = request_id.encode("utf-8", "surrogatepass")
    # In native byte order, so that `array` stores the bytes of the digest unchanged.
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), byteorder)


def digest_bytes(request_id: str) -> bytes:
    """Return the 8-byte digest of a request id."""
    text = request_id.encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


def digests_of(packed: bytes) -> list[int]:
    """Return concatenated digests as integers."""
    return memoryview(packed).cast("Q").tolist()


# --- identification of events ---------------------------------------------------------------------


class IdentifiedEvent(Struct, gc=False):
    """An event with a request id, its deduplication keys (`dedup_keys`) and its verified signer.

    `signer` and `problem` are as in `signatures.VerifiedPrincipal`.
    """

    request_id: str
    event: RequestEvent | Malformed
    dedup_keys: tuple[int, ...]
    signer: str | None = None
    problem: str | None = None

    def may_be_copied(self, now: int) -> bool:
        """Whether the event may be a copy of an earlier one: unsigned, or after its deadline.

        Such an event is also compared with parked requests, because a join may be parked for longer
        than the window.
        """
        deadline = self.event.deadline if isinstance(self.event, RequestEvent) else None
        return self.signer is None or (deadline is not None and now > deadline)


def identify(
    request_id: str, event: RequestEvent | Malformed, signatures: Signatures | None
) -> IdentifiedEvent:
    """Find the signer and the deduplication keys of an event.

    `signatures` None: requests are not signed.
    """
    if signatures is None:
        return IdentifiedEvent(request_id, event, (digest(request_id),))
    signer = problem = None
    if isinstance(event, RequestEvent):
        signer, problem = signatures.verify(event)
    keys = dedup_keys(request_id, signer, signatures.names)
    return IdentifiedEvent(request_id, event, keys, signer, problem)


def parked_dedup_keys(group: ClassicGroup | None) -> set[int]:
    """Return the keys of the JoinGroup and SyncGroup requests that the group has not answered."""
    members = () if group is None else group.members.values()
    return {
        digest(parked.request_id)
        for member in members
        for parked in (member.awaiting_join, member.awaiting_sync)
        if parked is not None
    }
