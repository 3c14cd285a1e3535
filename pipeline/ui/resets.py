"""The form of a reset: where to put a group's committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pipeline.admin.changes import plan_reset
from pipeline.errors import Failure

if TYPE_CHECKING:
    from pipeline.admin.changes import Change

# What a reset can aim at, in words; each needs a value.
AIMS = {"to-offset": "To an offset", "shift-by": "Forward or back by"}


class ResetForm(Struct, frozen=True):
    """What was chosen so far. `topic` empty: all topics of the group."""

    aim: str = ""
    value: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ResetForm:
        """Read the form from a URL."""
        aim = query.get("aim", "")
        return cls(
            aim=aim if aim in AIMS else "",
            value=query.get("value", "").strip(),
            topic=query.get("topic", "").strip(),
        )

    @property
    def is_complete(self) -> bool:
        """Whether it says where the offsets are to go."""
        return bool(self.aim and self.value)

    def in_words(self) -> str:
        """The reset in a few words."""
        of = f" of {self.topic}" if self.topic else ""
        return f"reset the offsets{of}: {AIMS[self.aim].lower()} {self.value}"


def plan_of(root: str, group_id: str, form: ResetForm) -> list[Change]:
    """What the reset would change. Raises Failure."""
    try:
        number = int(form.value)
    except ValueError as error:
        raise Failure(f"{form.value!r} is no whole number") from error
    topics = [form.topic] if form.topic else []
    if form.aim == "to-offset":
        return plan_reset(root, group_id, topics, number, None)
    return plan_reset(root, group_id, topics, None, number)
