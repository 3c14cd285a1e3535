"""The checks of a start before Spark is started, so that a wrong start is refused at once."""

from __future__ import annotations

from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import WrongCall
from group_coordinator.pipeline.tables.store import check_release


def check_start(root: str) -> None:
    """Raise WrongCall for a root that cannot be one, LaterRelease for one of a later release.

    A root that is not there yet is made, but not the folder that it is to lie in: that would hide
    a typing error, or a disk that is not mounted. A root in a store is written to
    (`pipeline.delta.store_check`); raises OSError if that cannot be done.
    """
    folder = local_folder(root)
    if folder is None:
        # A root in a local folder needs no store's client, whose import is slow.
        from group_coordinator.pipeline.delta.store_check import check_store

        check_store(root.rstrip("/"))
        check_release(root)
        return
    if folder.is_dir():
        check_release(root)
        return
    if folder.exists():
        raise WrongCall(f"the root {root} is no folder")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise WrongCall(f"the root {root} cannot be made: there is no folder {parent}")
