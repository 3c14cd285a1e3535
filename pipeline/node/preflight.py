"""The checks that run before Spark is started, so that a wrong start fails at once."""

from __future__ import annotations

from group_coordinator.pipeline.delta import local_folder
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.tables import check_release


def check_start(root: str) -> None:
    """Raise UsageError if `root` cannot be a root, LaterRelease if it is of a later release.

    A missing root is created later, but its parent folder must exist: a missing parent is a typing
    error, or a disk that is not mounted. A root in a store is checked by a write
    (`pipeline.delta.store_check`). Raises OSError if the write fails.
    """
    folder = local_folder(root)
    if folder is None:
        # Imported here, because the import of a store's client is slow, and a local folder needs
        # none.
        from group_coordinator.pipeline.delta import check_store

        check_store(root.rstrip("/"))
        check_release(root)
        return
    if folder.is_dir():
        check_release(root)
        return
    if folder.exists():
        raise UsageError(f"the root {root} is not a folder")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"the root {root} cannot be created: the folder {parent} does not exist")
