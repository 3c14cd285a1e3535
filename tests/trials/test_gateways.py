"""The simulation of gateways keeps its promises, is repeatable, and sees each promise broken."""

from __future__ import annotations

import pytest

from group_coordinator.pipeline.topics import log_appender
from group_coordinator.pipeline.topics.log_appender import LogAppender
from tests.trials.gateways.promises import ACKNOWLEDGED, DENSE
from tests.trials.gateways.simulation import Plan, simulate
from tests.trials.simulation.world import Broken

SMALL = Plan(1, records=2_000)


def broken(plan: Plan) -> Broken:
    outcome = simulate(plan)
    assert outcome.broken is not None, "\n".join(outcome.story)
    return outcome.broken


def test_the_same_seed_is_the_same_run():
    first, second = simulate(SMALL), simulate(SMALL)
    assert first.broken is None, "\n".join(first.story)
    assert (first.digest, first.counts, first.checks) == (
        second.digest,
        second.counts,
        second.checks,
    )
    assert first.digest != simulate(Plan(2, records=2_000)).digest


def test_it_finds_that_an_offset_is_given_twice(monkeypatch: pytest.MonkeyPatch):
    to_rows = log_appender.to_rows
    monkeypatch.setattr(
        log_appender, "to_rows", lambda topic, batches, _base, now: to_rows(topic, batches, 0, now)
    )
    assert broken(SMALL).promise == DENSE


def test_it_finds_that_records_are_acknowledged_elsewhere(monkeypatch: pytest.MonkeyPatch):
    append = LogAppender.append

    def elsewhere(self: LogAppender, *rest):
        outcomes = append(self, *rest)
        return [*outcomes[1:], outcomes[0]]

    monkeypatch.setattr(LogAppender, "append", elsewhere)
    assert broken(SMALL).promise == ACKNOWLEDGED
