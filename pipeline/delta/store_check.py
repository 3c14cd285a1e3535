"""Whether a store refuses to create what is there: that alone keeps two writers apart.

A commit is a PUT that the store is to refuse if the version's object is there (`If-None-Match: *`;
`x-goog-if-generation-match: 0` for GCS). A store that does not know the condition, or a proxy that
drops it, answers that the object was created. There each of two writers would replace the other's
commits, both would be told that theirs is in the table, and nobody would notice.
"""

from __future__ import annotations

import functools
import uuid

from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import WrongCall

# Readers of Delta, and VACUUM, pass over names that begin so.
_NAME = "_create-twice-{}"


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
