"""Requirements of a store: it refuses to create an existing object, and its clock is right.

A commit is a PUT on the condition that its version does not exist (`If-None-Match: *`; for GCS
`x-goog-if-generation-match: 0`). Some stores and proxies ignore the condition and report success.
Then two writers would silently replace each other's commits.

Deletion of files by age compares the store's times with the local clock. If the clock is a day
fast, VACUUM would delete the file of an append that is about to be committed.
"""

from __future__ import annotations

import functools
import uuid

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure, UsageError

# Readers of Delta, and VACUUM, ignore names with this prefix.
_NAME = "_create-twice-{}"

# The maximum difference between the clocks, ms: far more than between synchronized clocks, and far
# less than an hour, the minimum age at which files are deleted.
MOST_SKEW_MS = 10 * 60_000


class UnfitStore(UsageError):
    """A store that replaces an existing object although the PUT forbids it."""


@functools.cache
def check_store(uri: str) -> None:
    """Raise UnfitStore if the store replaces an existing object on a conditional PUT.

    Three requests, once for each URI and process; none for a local folder. Raises OSError if the
    store cannot be reached, or refuses writes.
    """
    if local_folder(uri) is not None:
        return
    folder = ObjectStore(uri)
    name = _NAME.format(uuid.uuid4())
    _create(folder, name, b"1")
    # The first PUT may report that the object exists: after a lost response the client retries it.
    try:
        replaces = _create(folder, name, b"2")
    finally:
        folder.delete([name])
    if replaces:
        raise UnfitStore(
            f"the store of {uri} replaces an existing object although the PUT forbids it "
            "(`If-None-Match: *`), so two writers would overwrite each other's commits: use a "
            "store that observes the condition, and no proxy that drops it"
        )


def _create(folder: ObjectStore, name: str, content: bytes) -> bool:
    try:
        folder.put_absent(name, content)
    except FileExistsError:
        return False
    return True


class ClockSkew(Failure):
    """This machine's clock differs from the store's; the message says by how much."""


def check_clock(uri: str) -> None:
    """Raise ClockSkew if this machine's clock differs from the store's; three requests."""
    skew_ms = clock_ms() - _store_clock_ms(uri)
    if abs(skew_ms) > MOST_SKEW_MS:
        way = "ahead of" if skew_ms > 0 else "behind"
        raise ClockSkew(
            f"this machine's clock is {abs(skew_ms) / 1000:,.0f} s {way} that of the store of "
            f"{uri}, so no file is deleted by its age: correct the clock"
        )


def _store_clock_ms(uri: str) -> int:
    files = open_files(uri)
    # Readers and VACUUM ignore names with this prefix.
    name = f"_clock-{uuid.uuid4()}"
    with files.open_output_stream(name):
        pass
    try:
        return int(files.get_file_info(name).mtime_ns) // 1_000_000
    finally:
        files.delete_file(name)
