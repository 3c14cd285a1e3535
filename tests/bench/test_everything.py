"""Tests of all benchmarks on one page: its content, and the recorded part of each run."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Annotated

import pytest
from msgspec import Struct
from typer.main import get_command

from group_coordinator.pipeline.errors import Failure
from tests.bench.__main__ import NAME, bench_app
from tests.bench.everything import PLANS, Plan, bench_all
from tests.bench.machine import MachineReport
from tests.bench.memory import Memory
from tests.bench.report import Aim, Column, Report, bar
from tests.bench.soak import WATCHED, Sample, SoakReport, growth, report
from tests.ends import check_end
from tests.support.command import run_command
from tests.support.kept import markdown

NOW = 1_800_000_000_000


class Lap(Struct):
    name: Annotated[str, Column("who")]
    hidden: int
    time_ms: Annotated[float, Column("s", ".1f", unit=1_000, bar="time")]
    memory: Memory
    falls: Annotated[int, Column("falls", absent=0)]
    files: Annotated[dict[str, int], Column("files", ",.0f")]


class Passes(Report):
    laps: list[Lap]

    def rows(self) -> list[Lap]:
        return self.laps

    def ratios(self) -> dict[str, dict[str, float]]:
        return {"ratio": {"s": 2.0}}


def test_every_bench_is_one_of_all() -> None:
    names = {command.name for command in bench_app.registered_commands}
    assert names == {plan.name for plan in PLANS} | {"all", "page"}
    commands = get_command(bench_app).commands
    for plan in PLANS:
        assert plan.what().endswith(".")
        for quick in (True, False):
            name, *options = plan.command(quick)
            # Raises for an option that the command does not have.
            commands[name].make_context(name, [*options, "--json", "--record"])


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: " ".join(plan.command(True)))
def test_a_quick_run_of_each_bench_reports(plan: Plan) -> None:
    assert bench_all(True, print, plans=[plan]) == []


@pytest.mark.full
def test_each_bench_runs_as_a_command_and_a_failure_stops_none() -> None:
    said: list[str] = []
    machine = next(plan for plan in PLANS if plan.name == "machine")
    broken = Plan("machine", MachineReport, "--no-such-option")
    failed = bench_all(True, said.append, plans=[broken, machine])
    assert failed == ["python -m tests.bench machine --no-such-option"]
    assert said[0] == "1 of 2: machine --no-such-option"
    assert "machine: commits, 1 groups of 100" in said
    assert any(line.startswith("heartbeats, 5 a member >= 200,000 a second: ") for line in said)


def test_an_aim_is_met_at_its_bound() -> None:
    assert Aim("p50", "ms", 200, 200).words() == ("p50 <= 200 ms", "200", "met")
    assert Aim("ratio", "", 1.15, 1.151).words() == ("ratio <= 1.15", "1.15", "missed")
    assert Aim("heartbeats", "a second", 200_000, 199_999, most=False).met is False
    assert Passes([]).aims() == []


def test_growth_tells_what_grows_from_what_comes_and_goes() -> None:
    assert growth([7] * 30) == 1
    assert growth(list(range(1, 31))) == 1.5
    assert growth([n % 5 for n in range(30)]) == 1
    assert growth([5, 4, 3]) == 0.75
    assert growth([3]) == 1


def soak_report(times: list[float], files: int, requests_log: int = 3) -> SoakReport:
    names = [table.name for table in WATCHED]
    samples = [
        Sample(
            60.0 * at,
            10,
            1.0,
            2.0,
            Memory(100, 200 + at, 1),
            dict.fromkeys(names, files * at),
            dict.fromkeys(names, 1_000 * at) | {"requests": requests_log * at},
        )
        for at in range(1, 13)
    ]
    sixths = [len(times) * number // 6 for number in range(1, 6)]
    return report(720.0, times, 0, sixths, samples)


def test_a_soak_compares_its_last_sixth_with_its_first() -> None:
    found = soak_report([0.1] * 200 + [9.0] * 800 + [0.2] * 200, 100)
    assert (found.first_p99_ms, found.last_p99_ms) == pytest.approx((100, 200))
    assert found.ratio_p99 == pytest.approx(2)
    assert (found.driver_growth, found.jvm_growth) == (1, 212 / 208)
    assert found.files_growth == 1.5
    assert [aim.met for aim in found.aims()] == [False, True, True, False]
    # A few files more or less are no growth.
    assert soak_report([0.1] * 1_200, 3).files_growth == 1
    assert soak_report([0.1] * 1_200, 3, requests_log=100).files_growth == 1.5
    with pytest.raises(Failure, match="the first sixth: only 10 answers"):
        soak_report([0.1] * 60, 1)


def test_a_table_shows_the_fields_that_have_a_column() -> None:
    memory = Memory(1_000_000, 2_000_000, 0)
    laps = [Lap("a", 7, 1_500, memory, 0, {"x": 1_000, "y": 1}), Lap("b", 7, 3_000, memory, 3, {})]
    table = Passes(laps).table()
    assert markdown(*table).splitlines() == [
        "| who | s | time | peak MB: driver | JVM | worker | falls | files |",
        "|---|---|---|---|---|---|---|---|",
        "| a | 1.5 | ██████████ | 1 | 2 | 0 |  | 1,001 |",
        "| b | 3.0 | ████████████████████ | 1 | 2 | 0 | 3 | 0 |",
        "| ratio | 2.00 |  |  |  |  |  |  |",
    ]


@pytest.mark.parametrize(("value", "absent"), [(0, 0), ({}, 0), (-1, -1), (-1.0, -1)])
def test_what_was_not_measured_is_an_empty_cell(value: object, absent: int) -> None:
    assert Column("x", ".1f", absent=absent).cell(value) == ""


def test_a_measured_0_is_shown_where_another_value_is_absent() -> None:
    assert [Column("x", ".1f", absent=-1).cell(0), Column("x", ".1f").cell(-1)] == ["0.0", "-1.0"]


def test_every_benchmark_has_a_table() -> None:
    assert all(plan.report.rows is not Report.rows for plan in PLANS)


def test_without_a_command_the_benchmarks_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])
    with pytest.raises(SystemExit) as ended:
        run_command(bench_app, NAME)
    assert ended.value.code == 2
    assert "take-over" in capsys.readouterr().out


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise Failure("no such jars")

    monkeypatch.setattr("tests.bench.machine.bench_machine", fail)
    monkeypatch.setattr(sys, "argv", ["bench", "machine"])
    with pytest.raises(SystemExit) as ended:
        run_command(bench_app, NAME)
    assert ended.value.code == "python -m tests.bench: no such jars"


def test_figures_are_drawn() -> None:
    assert bar(1, 2) == "█" * 10
    assert bar(1, 32) == "▋"
    assert bar(-1, 0) == ""
    assert markdown(["a", "b"], [[1, "x"]]) == "| a | b |\n|---|---|\n| 1 | x |"


_TOLD_TO_END = """
import sys
import time
from tests.bench import verbs
from tests.bench.__main__ import NAME, bench_app
from tests.support.command import run_command

def bench_verbs(*_arguments):
    try:
        print("began", flush=True)
        time.sleep(60)
    finally:
        print("ended what it has started", flush=True)

verbs.bench_verbs = bench_verbs
sys.argv[1:] = ["verbs"]
run_command(bench_app, NAME)
"""


@pytest.mark.full
def test_a_bench_that_is_told_to_end_ends_what_it_has_started() -> None:
    """`timeout` and service managers send SIGTERM, which ends Python without an exception."""
    with subprocess.Popen(
        [sys.executable, "-c", _TOLD_TO_END], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.terminate()
        assert process.stdout.read() == "ended what it has started\n"
    # The exit status is that of a process ended by Ctrl-C.
    check_end(process.returncode, expected=128 + signal.SIGINT)
