"""Sockets of the simulated world end as a kernel's do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.trials.gateways.loop import SimulatedLoop
from tests.trials.gateways.network import Listening, Network
from tests.trials.simulation.clocks import MachineClock
from tests.trials.simulation.world import Process, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


class Client(asyncio.Protocol):
    is_lost = False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True


@pytest.mark.parametrize("closes", [True, False])
def test_a_connection_that_is_under_way_as_the_listener_closes_is_reset(
    world: World, closes: bool
) -> None:
    """A kernel resets connections in a closed socket's backlog: the gateway never accepts them."""
    network, client = Network(world), Client()
    loops = [
        SimulatedLoop(world, Process(name, MachineClock()), Random(1))
        for name in ("gateway", "client")
    ]
    listening = Listening(network, loops[0], 9092)
    accepted: list[Any] = []
    listening.begin(lambda end, _host: accepted.append(end))

    async def connect() -> None:
        await network.connect(9092, "host", client)
        if closes:
            listening.close()

    loops[1].post(0.0, lambda: loops[1].create_task(connect()))
    world.run_until(100)
    assert (client.is_lost, len(accepted)) == (closes, 0 if closes else 1)
