"""Opening the store of a URI: a disk or an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.disk import Disk
from group_coordinator.pipeline.delta.table import local_folder

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.store import Store


def open_store(uri: str) -> Store:
    """Return the store of a URI's folder."""
    folder = local_folder(uri)
    if folder is not None:
        return Disk(folder)
    # Of a table in a local folder nobody waits for the import of a store's client, 30 ms of CPU.
    from group_coordinator.pipeline.delta.object_store import ObjectStore

    return ObjectStore(uri)
