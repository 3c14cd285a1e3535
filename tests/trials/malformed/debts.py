"""Outstanding responses: one for each request, and a rejected row for events without sender."""

from __future__ import annotations

from collections import Counter
from typing import Any

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.errors import ERROR_NAMES
from tests.trials.malformed.files import MAY_WAIT, Key, Owed


class TrialFailed(Failure):
    """A promise was broken; the message names the request that shows it."""


class Debts:
    """Counter of expected and received responses; every mismatch raises TrialFailed."""

    def __init__(self) -> None:
        self.answered = 0
        self.rejected = 0
        self.repeats = 0
        self.errors: Counter[str] = Counter()
        self._answers: dict[Key, str] = {}
        self._rejects = 0

    def add(self, owed: Owed) -> None:
        """Add the responses due for a file."""
        self._answers |= owed.answers
        self._rejects += owed.rejected
        self.repeats += owed.repeats

    def answer(self, response: dict[str, Any]) -> None:
        """Take a row of `responses`."""
        key = (response["group_id"], response["request_id"])
        if self._answers.pop(key, None) is None:
            raise TrialFailed(f"an answer that nobody is owed, or a second one: {_short(key)}")
        self.answered += 1
        self.errors[ERROR_NAMES[response["error_code"]]] += 1

    def reject(self, rows: int) -> None:
        """Take so many rows of `rejected_requests`."""
        self.rejected += rows
        self._rejects -= rows

    @property
    def groups(self) -> set[str]:
        """The groups that owe answers."""
        return {group_id for group_id, _ in self._answers}

    def check(self) -> None:
        """See that only joins and syncs, which may wait for other members, are still owed."""
        late = [key for key, api in self._answers.items() if api not in MAY_WAIT]
        if late:
            raise TrialFailed(f"{len(late)} requests were not answered, such as {_short(late[0])}")
        if self._rejects:
            raise TrialFailed(f"{self._rejects} more events were to be rejected")


def _short(key: Key) -> str:
    return ", ".join(f"{one[:50]!r}{one[-20:]!r}" if len(one) > 70 else repr(one) for one in key)
