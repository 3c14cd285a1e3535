"""Changes of a group's committed offsets: the forms of a reset and an undo, and their previews.

A preview page's button makes exactly the changes that the page showed. They are stored here under a
token that the button sends. A token works once, for ten minutes. It is random and only in the page,
so another site cannot send it (CSRF).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from group_coordinator.pipeline.admin.changes import execute_changes
from group_coordinator.pipeline.admin.history import plan_return, plan_undo
from group_coordinator.pipeline.admin.plans import GroupPlan, OffsetChange, committed_offsets_of
from group_coordinator.pipeline.admin.reset import (
    SCENARIOS,
    parse_scenario,
    parse_time,
    plan_resets,
)
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.ui.forms import choice, text

# The aims of a reset, in words.
SCENARIO_LABELS = {
    "to-earliest": "To the first record",
    "to-latest": "To the end",
    "to-offset": "To an offset",
    "shift-by": "Forward or back by a number of records",
    "to-datetime": "To a time (UTC)",
    "by-duration": "To a time before now",
}
SCENARIO_EXAMPLES = {
    "to-offset": "1200",
    "shift-by": "-100",
    "to-datetime": "2026-11-17T12:00:00",
    "by-duration": "PT30M",
}
_VALID_S = 600.0
# The most previews in memory; one of a group with many partitions takes a few MB.
_MAX_PREVIEWS = 64


class ResetForm(Struct, frozen=True):
    """The choices so far. An empty `topic` means all topics with committed offsets."""

    aim: str = ""
    value: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ResetForm:
        """Parse the form from the query of a URL."""
        return cls(
            aim=choice(query, "aim", SCENARIO_LABELS),
            value=text(query, "value"),
            topic=text(query, "topic"),
        )

    @property
    def is_complete(self) -> bool:
        """Whether the form has an aim, and its value if the aim needs one."""
        return bool(self.aim and (self.value or not SCENARIOS[self.aim]))

    def description(self) -> str:
        """Describe the reset in a few words."""
        of = f" of {self.topic}" if self.topic else ""
        value = f" {self.value}" if SCENARIOS[self.aim] else ""
        return f"reset the offsets{of} ({self.aim}{value})"

    def plan(self, root: str, group_id: str) -> GroupPlan:
        """Return the changes that the reset would make. Raises Failure."""
        topics = [self.topic] if self.topic else []
        (plan,) = plan_resets(root, [group_id], topics, parse_scenario(self.aim, self.value))
        if plan.problem is not None:
            raise Failure(plan.problem)
        moved = tuple(each for each in plan.changes if each.current != each.wanted)
        return structs.replace(plan, changes=moved)


def undo_plan(root: str, group_id: str, to: str) -> GroupPlan:
    """Return the plan to undo the last operator's change or, with `to`, to return to a time (UTC).

    Raises Failure.
    """
    return plan_return(root, group_id, parse_time(to)) if to else plan_undo(root, group_id)


def undo_description(to: str) -> str:
    """Describe the undo in a few words."""
    return f"go back to the offsets of {to}" if to else "undo the last change by an operator"


class PreviewExpired(Failure):
    """A preview was carried out already, is too old or was evicted, or the server restarted."""


class OffsetMoved(Failure):
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
            while len(self._previews) >= _MAX_PREVIEWS:
                del self._previews[next(iter(self._previews))]
            self._previews[preview.token] = preview
        return preview

    def take(self, token: str) -> Preview:
        """Remove a preview and return it. Raises PreviewExpired."""
        with self._lock:
            preview = self._previews.pop(token, None)
        if preview is None or self._clock() - preview.made > _VALID_S:
            raise PreviewExpired(
                "this preview was executed already or is older than ten minutes; "
                "nothing was changed now: open a new preview"
            )
        return preview


def execute_preview(root: str, preview: Preview, timeout_s: float = 30.0) -> None:
    """Send the previewed changes to the coordinator.

    Raises OffsetMoved if a committed offset differs from the preview, Failure with the
    coordinator's reason if it rejects the request, and NoAnswer.
    """
    now = committed_offsets_of(Catalog(root), [preview.group_id])[preview.group_id]
    for change in preview.changes:
        found = now.get((change.topic, change.partition))
        if found != change.current:
            raise OffsetMoved(
                f"the offset of {change.topic} {change.partition} is {_or_none(found)} now and was "
                f"{_or_none(change.current)} in the preview; nothing was changed: open a new one"
            )
    execute_changes(root, preview.group_id, preview.changes, timeout_s)


def _or_none(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
