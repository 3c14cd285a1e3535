"""The checks that run before Spark is started, so that a wrong start fails at once."""

from __future__ import annotations

from group_coordinator.pipeline.delta import local_folder
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.tables import check_release


def check_start(root: str) -> None:
    """Raise UsageError if `root` cannot be a root, LaterRelease if a later release wrote it.

    A missing local root is created later, but its parent must exist, because the path may be
    mistyped or a disk not mounted. A root in an object store is checked by a write, which may raise
    OSError.
    """
    folder = local_folder(root)
    if folder is None:
        # The import of a store's client is slow, and a local folder needs none.
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
