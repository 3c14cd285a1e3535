"""What a store must do: refuse to create what is there, and have a clock like this machine's.

A commit is a PUT that the store is to refuse if the version's object is there (`If-None-Match: *`;
`x-goog-if-generation-match: 0` for GCS). A store that does not know the condition, or a proxy that
drops it, answers that the object was created. There each of two writers would replace the other's
commits, both would be told that theirs is in the table, and nobody would notice.

A store stamps each file with its own time. Whoever deletes files by their age compares that with
the time of the machine it runs on: with a clock a day fast VACUUM would take the file of an append
that is about to be committed for one that was left behind days ago.
"""

from __future__ import annotations

import functools
import uuid

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure, WrongCall

# Readers of Delta, and VACUUM, pass over names that begin so.
_NAME = "_create-twice-{}"

# By how much the two may differ, ms: far more than clocks that are kept right do, and far less than
# the least age, an hour, of a file that is deleted.
MOST_SKEW_MS = 10 * 60_000


class UnfitStore(WrongCall):
    """A store that replaces what a writer creates, though it is there."""


@functools.cache
def check_store(uri: str) -> None:
    """Raise UnfitStore if the store of a URI replaces an object that is to be created.

    Three requests, once for each URI and process; none for a local folder. Raises OSError if the
    store cannot be asked, or refuses to be written to.
    """
    if local_folder(uri) is not None:
        return
    folder = ObjectStore(uri)
    name = _NAME.format(uuid.uuid4())
    _create(folder, name, b"1")
    # The answer to the first one may have been lost, and its repetition refused by what it created.
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
    """This machine's clock and the store's differ; the message says by how much."""


def check_clock(uri: str) -> None:
    """Raise ClockSkew if this machine's clock is not the table's store's; three requests."""
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
