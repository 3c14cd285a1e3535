"""Previewed changes that are not carried out yet.

The button of a preview page carries out exactly the changes that the page showed. They are stored
here under a token, and the button sends the token. A token works once, for ten minutes. It is
random and only in the preview page, so another site cannot send it (CSRF).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from msgspec import Struct

from group_coordinator.pipeline.admin.changes import carry_out
from group_coordinator.pipeline.admin.plans import GroupPlan, OffsetChange, committed_of
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog

_VALID_S = 600.0
# The most previews in memory; one of a group with many partitions takes a few MB.
_MOST = 64


class PreviewGone(Failure):
    """The preview was carried out already, is too old or was evicted, or the server restarted."""


class Moved(Failure):
    """An offset has changed since the preview, so nothing was changed."""


class Preview(Struct, frozen=True):
    """The changes of one press of a button, described by `what`."""

    token: str
    group_id: str
    what: str
    changes: tuple[OffsetChange, ...]
    notes: tuple[str, ...]
    made: float


class Previews:
    """The previews of one server. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._previews: dict[str, Preview] = {}
        self._lock = threading.Lock()

    def keep(self, what: str, planned: GroupPlan) -> Preview:
        """Store a preview and return it; evict the oldest one if there are too many."""
        token = secrets.token_urlsafe(24)
        preview = Preview(
            token, planned.group_id, what, planned.changes, planned.notes, self._clock()
        )
        with self._lock:
            while len(self._previews) >= _MOST:
                del self._previews[next(iter(self._previews))]
            self._previews[preview.token] = preview
        return preview

    def take(self, token: str) -> Preview:
        """Remove a preview and return it. Raises PreviewGone."""
        with self._lock:
            preview = self._previews.pop(token, None)
        if preview is None or self._clock() - preview.made > _VALID_S:
            raise PreviewGone(
                "this preview was carried out already or is older than ten minutes; "
                "nothing was changed now: look at a new preview"
            )
        return preview


def carry_out_preview(root: str, preview: Preview, timeout_s: float = 30.0) -> None:
    """Send the previewed changes to the coordinator.

    Raises Moved if a committed offset differs from the preview. Raises Failure with the
    coordinator's reason if it rejects the request, and NoAnswer if no coordinator answers.
    """
    now = committed_of(Catalog(root), [preview.group_id])[preview.group_id]
    for change in preview.changes:
        found = now.get((change.topic, change.partition))
        if found != change.current:
            raise Moved(
                f"the offset of {change.topic} {change.partition} is {_or_none(found)} now and was "
                f"{_or_none(change.current)} in the preview; nothing was changed: look at a new one"
            )
    carry_out(root, preview.group_id, preview.changes, timeout_s)


def _or_none(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
