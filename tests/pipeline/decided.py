"""Groups decided by the machine without Spark, with their states and timers in memory."""

from __future__ import annotations

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.machine import BatchMachine


class Groups:
    """The groups of one coordinator, decided batch by batch; times in ms."""

    def __init__(self, machine: BatchMachine) -> None:
        self._machine = machine
        self._states: dict[str | None, bytes | None] = {}
        self._deadlines: dict[str | None, int] = {}

    def due(self, now: int) -> dict[str | None, list[str]]:
        """Return the groups with timers that are due, each without an event."""
        return {group_id: [] for group_id, at in self._deadlines.items() if at <= now}

    def decide(self, events: dict[str | None, list[str]], now: int) -> list[GroupOutput]:
        """Decide one batch of each group's events, as JSON; return the outputs to write."""
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
