"""Who runs what, and when: the scheduler of a run in several processes, with processes that do not.

Each fake process ends its tests when the test says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import side_by_side
from tests.side_by_side import StartsShared, turn_of

TORTURE = "tests/trials/test_torture_kills.py::test_kills"
MEMBERS = ["tests/end_to_end/test_members.py::test_one", "tests/end_to_end/test_members.py::test_2"]
ZOMBIE = "tests/end_to_end/test_zombie.py::test_zombie"
TAKE_OVER = "tests/end_to_end/test_take_over.py::test_take_over"
JOIN = [f"tests/coordinator/test_join.py::test_{number}" for number in range(3)]
SYNC = ["tests/coordinator/test_sync.py::test_sync"]
LONG_TEST = "test_a_hundred_thousand_requests_beside_faults_keep_every_promise"
HOUSE = ["tests/test_house.py::test_mypy", "tests/test_house.py::test_ruff"]


class Maker:
    """An archive in the making, until `done`; `begun` if it was asked for."""

    def __init__(self) -> None:
        self.begun = False
        self.done = True

    def begin(self) -> None:
        self.begun, self.done = True, False

    def is_done(self) -> bool:
        return self.done

    def wait(self) -> None:
        self.done = True

    def end(self) -> None:
        pass


class Node:
    """A process, and what it was given to run."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue: list[str] = []
        self._tests = tests

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += [self._tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Maker:
    made = Maker()
    monkeypatch.setattr(side_by_side, "ArchiveMaker", lambda: made)
    return made


class Run:
    """A run of these tests in so many processes."""

    def __init__(self, tests: list[str], processes: int, markers: str = "") -> None:
        option = SimpleNamespace(loadscopereorder=False, markexpr=markers)
        config: Any = SimpleNamespace(
            option=option,
            add_cleanup=lambda _end: None,
            getvalue=lambda _name: ["popen"] * processes,
        )
        self.nodes = [Node(f"gw{number}", tests) for number in range(processes)]
        self.scheduler = StartsShared(config, None)
        for node in self.nodes:
            self.scheduler.add_node(node)
        for node in self.nodes:
            self.scheduler.add_node_collection(node, tests)
        self.scheduler.schedule()

    def end(self, node: Node, test: str) -> None:
        assert node.queue[0] == test
        node.queue.remove(test)
        self.scheduler.mark_test_complete(node, node._tests.index(test))


def test_what_shares_a_start_is_run_by_one_process(maker: Maker) -> None:
    maker.begin = lambda: None  # type: ignore[method-assign]
    (first, second) = Run([ZOMBIE, *MEMBERS, TAKE_OVER, *JOIN], 2).nodes
    assert first.queue == [ZOMBIE, TAKE_OVER]
    assert second.queue == MEMBERS


def test_what_waits_behind_minutes_is_little(maker: Maker) -> None:
    maker.begin = lambda: None  # type: ignore[method-assign]
    (first, second) = Run([TORTURE, ZOMBIE, *MEMBERS, *JOIN, *SYNC], 2).nodes
    assert first.queue == [TORTURE, *SYNC], "not the members, which another process can take"
    assert second.queue == [ZOMBIE, *JOIN]


def test_small_files_run_while_the_archive_is_made(maker: Maker) -> None:
    run = Run([TORTURE, *MEMBERS, *HOUSE, *JOIN, *SYNC], 1)
    (node,) = run.nodes
    assert maker.begun
    assert node.queue == [*SYNC, *JOIN], "the last and smallest first"
    for test in (*SYNC, *JOIN[:2]):
        run.end(node, test)
    assert node.queue == [JOIN[2], HOUSE[1]]
    maker.done = True
    run.end(node, JOIN[2])
    assert node.queue == [HOUSE[1], TORTURE]


def test_where_there_is_nothing_else_the_archive_is_waited_for(maker: Maker) -> None:
    (node,) = Run([*MEMBERS], 1).nodes
    assert maker.begun and maker.done
    assert node.queue == MEMBERS


@pytest.mark.parametrize(("tests", "markers"), [(JOIN, ""), ([*MEMBERS, *JOIN], "not spark")])
def test_without_spark_there_is_no_archive(maker: Maker, tests: list[str], markers: str) -> None:
    Run(tests, 1, markers)
    assert not maker.begun


def test_each_test_that_shares_nothing_may_go_its_own_way(maker: Maker) -> None:
    (first, second) = Run([*HOUSE, *JOIN, *SYNC], 2).nodes
    assert (first.queue[0], second.queue[0]) == tuple(HOUSE)


def test_a_long_test_of_a_file_comes_before_the_file_s_others() -> None:
    simulation = "tests/trials/test_simulation.py"
    turns = [turn_of(f"{simulation}::{name}") for name in (LONG_TEST, "test_another")]
    assert turns[0] < turns[1] < turn_of("tests/coordinator/test_join.py::test_0")
