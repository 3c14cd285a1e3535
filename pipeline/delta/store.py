"""Where a table lies, a disk or an object store, by the few things that a log needs of it.

The two differ in what a look costs and in how long a name stays unsafe that was deleted. Both are
data of a store (`Costs`), so that what reads and writes a log is written once.
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
    """What differs between stores. Times in seconds."""

    # Whether a look is a request, which takes tens of milliseconds and is billed.
    is_remote: bool
    # Whoever has seen the log's end so lately knows that the next version's name was not freed by
    # a clean-up: no clean-up deletes what is younger. On a disk it may: a consumed table's log is
    # trimmed after half a minute, so each commit is looked at again.
    freed_s: float


class Listed(Struct, frozen=True):
    """A file of a list: its path below the store's root, its size in bytes and its time, ms."""

    path: str
    size: int
    modified_ms: int


class Outcome(Enum):
    """What became of a creation. TAKEN: another writer's file has the name."""

    MADE = "made"
    TAKEN = "taken"
    UNKNOWN = "unknown"


class Created(NamedTuple):
    """What became of a creation, and what the store said last if it was not simply made."""

    outcome: Outcome
    why: OSError | None = None


class NotFlushed(OSError):
    """A commit is in the log, and may not outlive a loss of power.

    What the disk has of it is not known, and a second fsync may say that all is well (fsyncgate):
    the log takes no more commits of this writer until the table is opened anew.
    """


class CommitStateUnknown(OSError):
    """Whether a commit is in the table could not be found out; its data files must stay.

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
        """Create a file whole, only if it is not there; its content is like no other one's.

        With `flushed` content and name are on the disk when this returns. Raises OSError if the
        file is certainly not made, and NotFlushed if it is made and a loss of power may undo that.
        """
        ...

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """Create or replace a file; return its time, ms. Raises OSError, and leaves no part then.

        With `flushed` content and name are on the disk when this returns.
        """
        ...

    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the files below a path, those of the least names; `most` None: all."""
        ...

    def stamp(self, path: str) -> object | None:
        """Return what tells a file from another one of the same name, None if there is none."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; those that are not there are no error."""
        ...


def settle(store: Store, path: str, content: bytes, why: OSError) -> Created:
    """Find out by its content whose a file is whose creation ended with the error `why`.

    A store may do what it was asked and say that it failed: a disk reports EIO after a link, a
    network file system sends it again and finds its own, the answer to a request is lost. What is
    cut off where it is ours tells nothing: taken for another writer's, ours would name data files
    that its writer deletes.
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
