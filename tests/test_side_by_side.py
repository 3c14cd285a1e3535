"""The scheduler of a run in several processes, with processes that run nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.side_by_side import StartsShared

MEMBERS = ["tests/end_to_end/test_members.py::test_one", "tests/end_to_end/test_members.py::test_2"]
ZOMBIE = "tests/end_to_end/test_zombie.py::test_zombie"
TAKE_OVER = "tests/end_to_end/test_take_over.py::test_take_over"
JOIN = [f"tests/coordinator/test_join.py::test_{number}" for number in range(3)]


class Node:
    """A process, and the tests assigned to it."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue: list[str] = []
        self._tests = tests

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += [self._tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """A run of these tests in a number of processes."""

    def __init__(self, tests: list[str], processes: int, markers: str = "") -> None:
        option = SimpleNamespace(loadscopereorder=False, markexpr=markers)
        config: Any = SimpleNamespace(
            option=option,
            getvalue=lambda _name: ["popen"] * processes,
        )
        self.nodes = [Node(f"gw{number}", tests) for number in range(processes)]
        self.scheduler = StartsShared(config, None)
        for node in self.nodes:
            self.scheduler.add_node(node)
        for node in self.nodes:
            self.scheduler.add_node_collection(node, tests)
        self.scheduler.schedule()


def test_what_shares_a_start_is_run_by_one_process() -> None:
    (first, second) = Run([ZOMBIE, *MEMBERS, *JOIN, TAKE_OVER], 2).nodes
    assert first.queue[:2] == [ZOMBIE, TAKE_OVER]
    assert second.queue[:2] == MEMBERS


def test_without_spark_files_that_would_share_a_start_go_their_own_ways() -> None:
    (first, second) = Run([ZOMBIE, TAKE_OVER], 2, "not spark").nodes
    assert (first.queue, second.queue) == ([ZOMBIE], [TAKE_OVER])
