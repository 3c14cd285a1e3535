"""Delta tables as all of this project opens them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlparse

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

T = TypeVar("T")

# How often what lost against others is tried again.
ATTEMPTS = 50
# What delta-rs says when it listed a log of which a part was not there yet.
_HALF_LISTED = ("CRC file version", "Expected contiguous commit files")


def local_folder(uri: str) -> Path | None:
    """Return the folder that a URI or a path names, None if it is not on a local disk."""
    url = urlparse(uri)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if url.scheme else Path(uri)


def open_delta(uri: str) -> DeltaTable:
    """Open a table through delta-rs; raises deltalake's TableNotFoundError."""
    return _beside_writers(lambda: DeltaTable(uri))


def refresh(handle: DeltaTable) -> None:
    """Bring a table that is open to its newest version."""
    _beside_writers(handle.update_incremental)


def has_features(handle: DeltaTable) -> bool:
    """Whether the table's protocol names features: each may ask something of whoever commits."""
    protocol = handle.protocol()
    return bool(protocol.reader_features or protocol.writer_features)


def _beside_writers(read: Callable[[], T]) -> T:
    """Read a log to which others write.

    delta-rs lists a log and then reads it. Of two commits that land meanwhile the list may have the
    second one alone, and of a commit and its checksum the checksum: it fails then, and the next
    look finds both.
    """
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except DeltaError as error:
            if attempt == ATTEMPTS - 1 or not any(sign in str(error) for sign in _HALF_LISTED):
                raise
            back_off(attempt)
    raise AssertionError("the last attempt returns or raises")


def back_off(attempt: int) -> None:
    """Wait up to 2 ms, doubling with each attempt up to a quarter of a second."""
    time.sleep(random.uniform(0, min(0.25, 0.002 * 2**attempt)))
