"""A table's location, a disk or an object store, with the few operations that a log needs.

The two differ in the cost of a look, and in the time for which a deleted name stays unsafe. Both
are data of a store (`Costs`), so the code that reads and writes a log exists once.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    # What Arrow has encoded, or bytes.
    Buffer = bytes | Any


class Costs(Struct, frozen=True):
    """The differences between stores. Times in seconds."""

    # Whether a look is a request, which takes tens of milliseconds and is billed.
    is_remote: bool
    # If a writer saw the log's end this recently, a clean-up cannot have freed the next version's
    # name, because no clean-up deletes younger files. On a disk it can: a consumed table's log is
    # trimmed after half a minute, so each commit is checked.
    freed_s: float


class Listed(Struct, frozen=True):
    """A file of a list: its path below the store's root, its size in bytes and its time, ms."""

    path: str
    size: int
    modified_ms: int


class Outcome(Enum):
    """The outcome of a creation. TAKEN: another writer's file has the name."""

    MADE = "made"
    TAKEN = "taken"
    UNKNOWN = "unknown"


class Created(NamedTuple):
    """The outcome of a creation, and the store's last error unless it simply succeeded."""

    outcome: Outcome
    why: OSError | None = None


class NotFlushed(OSError):
    """A commit that is in the log but may not survive a power loss.

    The content on the disk is unknown, and a second fsync may report success (fsyncgate). So the
    log accepts no more commits of this writer until the table is opened again.
    """


class CommitStateUnknown(OSError):
    """A commit with an unknown outcome: it may be in the table, so its data files must stay.

    Source of the name: Apache Iceberg's CommitStateUnknownException.
    """


class Store(Protocol):
    """The files below one URI, by paths relative to it."""

    uri: str
    costs: Costs

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None if there is none. Raises OSError."""
        ...

    def create(self, path: str, content: bytes, flushed: bool = False) -> Created:
        """Create a file whole, only if it does not exist; no other file has the same content.

        With `flushed` content and name are on the disk when this returns. Raises OSError if the
        file was certainly not created. Raises NotFlushed if it was created and a power loss may
        undo that.
        """
        ...

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """Create or replace a file; return its time, ms. Raises OSError, and then leaves no part.

        With `flushed` content and name are on the disk when this returns.
        """
        ...

    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the files below a path in the order of names, at most `most`; None: all."""
        ...

    def stamp(self, path: str) -> object | None:
        """Return a stamp that differs for another file of the same name, None without a file."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; missing files are no error."""
        ...


def settle(store: Store, path: str, content: bytes, why: OSError) -> Created:
    """Determine from a file's content the outcome of its creation, which failed with `why`.

    A store may execute a request and report a failure. A disk reports EIO after a link, a network
    file system repeats the link and finds its own, or a response is lost. If the file has only the
    beginning of this content, the outcome is unknown. If it were taken for another writer's file,
    this writer would delete data files that its own commit names.
    """
    try:
        found = store.read(path)
    except OSError as unreadable:
        return Created(Outcome.UNKNOWN, unreadable)
    if found == content:
        return Created(Outcome.MADE, why)
    if found is None or content.startswith(found):
        return Created(Outcome.UNKNOWN, why)
    return Created(Outcome.TAKEN, why)
