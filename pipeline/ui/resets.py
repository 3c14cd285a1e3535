"""The forms of a reset and of an undo of a group's committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from group_coordinator.pipeline.admin.history import plan_return, plan_undo
from group_coordinator.pipeline.admin.plans import GroupPlan
from group_coordinator.pipeline.admin.reset import AIMS, parse_aim, plan_resets
from group_coordinator.pipeline.admin.times import parse_time
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ui.forms import choice, text

# The aims of a reset, in words.
AIM_WORDS = {
    "to-earliest": "To the first record",
    "to-latest": "To the end",
    "to-offset": "To an offset",
    "shift-by": "Forward or back by so many",
    "to-datetime": "To a time (UTC)",
    "by-duration": "To so long ago",
}
AIM_EXAMPLES = {
    "to-offset": "1200",
    "shift-by": "-100",
    "to-datetime": "2026-11-17T12:00:00",
    "by-duration": "PT30M",
}


class ResetForm(Struct, frozen=True):
    """The choices so far. An empty `topic` means all topics with committed offsets."""

    aim: str = ""
    value: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ResetForm:
        """Parse the form from the query of a URL."""
        return cls(
            aim=choice(query, "aim", AIM_WORDS),
            value=text(query, "value"),
            topic=text(query, "topic"),
        )

    @property
    def is_complete(self) -> bool:
        """Whether the form has an aim, and its value if the aim needs one."""
        return bool(self.aim and (self.value or not AIMS[self.aim]))

    def in_words(self) -> str:
        """Describe the reset in a few words."""
        of = f" of {self.topic}" if self.topic else ""
        value = f" {self.value}" if AIMS[self.aim] else ""
        return f"reset the offsets{of} ({self.aim}{value})"

    def plan(self, root: str, group_id: str) -> GroupPlan:
        """Return the changes that the reset would make. Raises Failure."""
        topics = [self.topic] if self.topic else []
        (plan,) = plan_resets(root, [group_id], topics, parse_aim(self.aim, self.value))
        if plan.problem is not None:
            raise Failure(plan.problem)
        moved = tuple(each for each in plan.changes if each.current != each.wanted)
        return structs.replace(plan, changes=moved)


def undo_plan(root: str, group_id: str, to: str) -> GroupPlan:
    """Return the changes of an undo of the last change by an operator.

    With `to`, return those of a return to the offsets at that time (UTC). Raises Failure.
    """
    return plan_return(root, group_id, parse_time(to)) if to else plan_undo(root, group_id)


def undo_words(to: str) -> str:
    """Describe the undo in a few words."""
    return f"go back to the offsets of {to}" if to else "undo the last reset"
