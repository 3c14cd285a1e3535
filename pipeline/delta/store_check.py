"""Requirements of a store: refuse to create an existing object, and have a correct clock.

A commit is a PUT that the store must refuse if the version's object exists (`If-None-Match: *`;
`x-goog-if-generation-match: 0` for GCS). A store that does not support the condition, or a proxy
that drops it, reports success. Then two writers would replace each other's commits, and both would
see success: the loss would stay unnoticed.

A store stamps each file with its own time. Deletion of files by age compares that time with the
local machine's clock. With a clock that is a day fast, VACUUM would delete the file of an append
that is about to be committed.
"""

from __future__ import annotations

import functools
import uuid

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure, UsageError

# Readers of Delta, and VACUUM, pass over names that begin so.
_NAME = "_create-twice-{}"

# The maximum difference between the clocks, ms. It is far more than between synchronized clocks. It
# is far less than an hour, the minimum age for the deletion of a file.
MOST_SKEW_MS = 10 * 60_000


class UnfitStore(UsageError):
    """A store that replaces an existing object although a writer asked to create it."""


@functools.cache
def check_store(uri: str) -> None:
    """Raise UnfitStore if the store of a URI replaces an existing object on a conditional PUT.

    Three requests, once for each URI and process; none for a local folder. Raises OSError if the
    store cannot be reached, or refuses writes.
    """
    if local_folder(uri) is not None:
        return
    folder = ObjectStore(uri)
    name = _NAME.format(uuid.uuid4())
    _create(folder, name, b"1")
    # The response to the first PUT may have been lost, and its retry refused because of the object
    # that it created.
    try:
        replaces = _create(folder, name, b"2")
    finally:
        folder.delete([name])
    if replaces:
        raise UnfitStore(
            f"the store of {uri} replaces an object that is to be created only if it is not there: "
            "two writers would overwrite each other's commits; tables need a store that refuses a "
            "PUT with `If-None-Match: *` of what is there, and no proxy that drops the condition"
        )


def _create(folder: ObjectStore, name: str, content: bytes) -> bool:
    try:
        folder.put_absent(name, content)
    except FileExistsError:
        return False
    return True


class ClockSkew(Failure):
    """A difference between the clocks of this machine and the store; the message has its size."""


def check_clock(uri: str) -> None:
    """Raise ClockSkew if this machine's clock differs from the store's; three requests."""
    skew_ms = clock_ms() - _store_clock_ms(uri)
    if abs(skew_ms) > MOST_SKEW_MS:
        way = "ahead of" if skew_ms > 0 else "behind"
        raise ClockSkew(
            f"this machine's clock is {abs(skew_ms) / 1000:,.0f} s {way} that of the store of "
            f"{uri}: by such a clock no file may be deleted for its age"
        )


def _store_clock_ms(uri: str) -> int:
    files = open_files(uri)
    # Readers and VACUUM pass over names that begin so.
    name = f"_clock-{uuid.uuid4()}"
    with files.open_output_stream(name):
        pass
    try:
        return int(files.get_file_info(name).mtime_ns) // 1_000_000
    finally:
        files.delete_file(name)
