"""Groups that the machine decides without Spark: their states and timers are kept here."""

from __future__ import annotations

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.machine import BatchMachine


class Groups:
    """The groups of one coordinator, a batch after the other; times in ms."""

    def __init__(self, machine: BatchMachine) -> None:
        self._machine = machine
        self._states: dict[str | None, bytes | None] = {}
        self._deadlines: dict[str | None, int] = {}

    def due(self, now: int) -> dict[str | None, list[str]]:
        """The groups whose timers are due, each with no event yet."""
        return {group_id: [] for group_id, at in self._deadlines.items() if at <= now}

    def decide(self, events: dict[str | None, list[str]], now: int) -> list[GroupOutput]:
        """Decide one batch: each group's events, as JSON; return what there is to write."""
        outputs = []
        for group_id, texts in events.items():
            result = self._machine.process(group_id, self._states.get(group_id), texts, now)
            self._deadlines.pop(group_id, None)
            if result.deadline is not None:
                self._deadlines[group_id] = result.deadline
            if result.changed:
                self._states[group_id] = result.state
            if result.output is not None:
                outputs.append(result.output)
        return outputs
