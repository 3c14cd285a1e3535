"""A group's page as one self-contained file, without a server or network."""

from __future__ import annotations

import base64
import hashlib

from group_coordinator.pipeline.admin.plans import UnknownGroup
from group_coordinator.pipeline.ui.group import read_group
from group_coordinator.pipeline.ui.pages import render, static_file
from group_coordinator.pipeline.ui.snapshot import RootSnapshot


def write_report(root: str, group_id: str) -> str:
    """Return the page as HTML with an inline style sheet, without scripts.

    Its Content-Security-Policy allows only this style sheet. Raises NoRoot and UnknownGroup.
    """
    snapshot = RootSnapshot(root, 1)
    group = read_group(snapshot, group_id)
    if not group.is_known:
        raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    style = static_file("style.css").decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render(
        "report.html",
        root=root,
        snapshot=snapshot,
        group=group,
        style=style,
        style_hash=digest,
    )
