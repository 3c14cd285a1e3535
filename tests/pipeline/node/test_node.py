"""What a node hands on of its settings."""

from __future__ import annotations

import pytest

from coordinator.config import GroupCoordinatorConfig
from coordinator.group.batch import BatchMachine
from coordinator.group.coordinator import Node
from coordinator.group.snapshot import decode
from coordinator.group.timers import next_deadline
from pipeline.bench.machine import START, MachineGroup
from pipeline.node.node import batch_settings
from pipeline.settings import CoordinatorSettings


@pytest.mark.parametrize(("late_ms", "expires"), [(12_000, True), (12_001, False)])
def test_a_timer_may_be_as_late_as_a_batch_waits_for_requests(late_ms: int, expires: bool):
    ours = CoordinatorSettings(trigger_interval_ms=10_000)
    config = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)
    machine = BatchMachine(batch_settings(ours, config, Node(1, "localhost", 9092)))
    group = MachineGroup(machine, "g", 1)
    group.form(START)
    formed = decode(group.state).group
    assert formed is not None
    due = next_deadline(formed)
    assert due is not None
    result = machine.process("g", group.state, [], due + late_ms)
    assert (result.output is not None) is expires
