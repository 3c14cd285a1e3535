"""The command `python -m tests.trials`: long checks of the coordinator's promises."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from group_coordinator.pipeline.cli.options import Json, print_progress
from group_coordinator.pipeline.cli.printing import to_json_line
from group_coordinator.pipeline.errors import Failure
from tests.support.command import run_command
from tests.support.kept import keep

if TYPE_CHECKING:
    from tests.trials.simulation.runs import Finding

NAME = "python -m tests.trials"

trial_app = typer.Typer(
    help="Trials of the coordinator's promises, longer than a test.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Seed = Annotated[int, typer.Option("--seed", help="What the trial's chances follow from.")]
Record = Annotated[
    bool, typer.Option("--record", help="Keep the report in the project, and render the page.")
]
Processes = Annotated[
    int | None, typer.Option("--processes", min=1, help="Runs at once; default: one a core.")
]
Without = Annotated[
    str | None,
    typer.Option("--without", help="Faults of a run to leave out, by their numbers: 0,3,7."),
]


@trial_app.command("simulate")
def trial_simulate(
    events: Annotated[int, typer.Option("--events", min=1, help="How many requests.")] = 100_000,
    seed: Seed = 1,
    processes: Processes = None,
    without: Without = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Simulate the whole system by a seed: nodes, clients, clocks and faults, in simulated time.

    A run that breaks a promise is shrunk to the faults that it needs, and printed with its command.
    The trial also fails if too few fenced epochs and stale generations were refused.
    """
    from tests.trials.simulation.trial import run_trial

    at_once = processes or os.cpu_count() or 1
    report = run_trial(seed, events, at_once, print_progress, _left_out(without))
    _tell("simulate", report, json, record)
    _tell_findings(report.findings, report.runs, json)
    if unproven := report.unproven():
        raise Failure("; ".join(unproven))


@trial_app.command("gateways")
def trial_gateways(
    events: Annotated[int, typer.Option("--events", min=1, help="How many records.")] = 50_000,
    seed: Seed = 1,
    processes: Processes = None,
    without: Without = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Simulate gateways by a seed: topics, indexers, ACLs, clients and faults, in simulated time.

    A run that breaks a promise is shrunk to the faults that it needs, and printed with its command.
    """
    from tests.trials.gateways.trial import run_gateways

    report = run_gateways(
        seed, events, processes or os.cpu_count() or 1, print_progress, _left_out(without)
    )
    _tell("gateways", report, json, record)
    _tell_findings(report.findings, report.runs, json)


@trial_app.command("malformed")
def trial_malformed(
    events: Annotated[int, typer.Option("--events", min=1, help="How many events.")] = 1_000_000,
    seed: Seed = 1,
    json: Json = False,
    record: Record = False,
) -> None:
    """Malformed requests by the million: each is answered once or set aside, and nothing stops."""
    from tests.trials.malformed.trial import run_malformed

    _tell("malformed", run_malformed(events, seed, print_progress), json, record)


@trial_app.command("torture")
def trial_torture(
    kills: Annotated[int | None, typer.Option("--kills", min=1, help="How many kills.")] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", help="Kill for so long.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=3, help="Coordinators.")] = 2,
    seed: Annotated[
        int | None, typer.Option("--seed", help="What the chances follow from; default: the time.")
    ] = None,
    kills_a_check: Annotated[
        int, typer.Option("--kills-a-check", min=1, help="The promises are checked so often.")
    ] = 4,
    json: Json = False,
    record: Record = False,
) -> None:
    """Kill, pause and starve coordinators on Spark under live clients, and check every promise."""
    if kills is None and minutes is None:
        raise typer.BadParameter("--kills, or --minutes, or both")
    from tests.trials.torture.run import torture

    report = torture(kills, minutes, print_progress, seed, nodes, kills_a_check)
    _tell("torture", report, json, record)
    if unproven := report.unproven():
        raise Failure("; ".join(unproven))


@trial_app.command("broker")
def trial_broker(
    kafka_libs: Annotated[
        Path,
        typer.Option(
            "--kafka-libs",
            envvar="GROUP_COORDINATOR_KAFKA_LIBS",
            help="A folder with Kafka's jars; an empty one is filled.",
        ),
    ],
    answers: Annotated[int, typer.Option("--answers", min=1, help="How many answers.")] = 20_000,
    seed: Seed = 1,
    json: Json = False,
    record: Record = False,
) -> None:
    """Ask a real Kafka broker and this coordinator the same, by chance, and compare the answers."""
    from tests.trials.broker.trial import run_broker

    report = run_broker(kafka_libs, answers, seed, print_progress)
    _tell("broker", report, json, record)
    if report.different:
        if not json:
            for difference in report.different:
                typer.echo("\n".join(difference.lines()))
        raise Failure(f"{len(report.different)} of {report.conversations} conversations differ")


@trial_app.command("mutants")
def trial_mutants(
    only: Annotated[
        str | None, typer.Option("--only", help="A word of a mutant's promise or of its file.")
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Copies of the checkout, one run in each.")
    ] = 1,
    json: Json = False,
    record: Record = False,
) -> None:
    """Break the product in one named place after the other: a test must find each of them."""
    from tests.trials.mutants.trial import run_mutants

    report = run_mutants(only, processes, print_progress)
    _tell("mutants", report, json, record)
    if unproven := report.unproven():
        raise Failure("\n".join([f"{len(unproven)} mutants are not found", *unproven]))


@trial_app.command("page")
def trial_page() -> None:
    """Render the page of figures from the reports that are kept."""
    from tests.trials.page import write_page

    typer.echo(str(write_page()))


def _tell(name: str, report: Any, json: bool, record: bool) -> None:
    """Print a trial's report, and keep it if it is to be kept."""
    from group_coordinator.pipeline.cli.printing import OutputFormat, print_result
    from group_coordinator.pipeline.monitor.catalog import Result

    if json:
        typer.echo(to_json_line(report))
    else:
        print_result(OutputFormat.TABLE, Result(["what", "how many"], report.rows()))
    if record:
        from tests.trials.page import RESULTS, write_page

        keep(RESULTS, name, f"{NAME} {shlex.join(sys.argv[1:])}", report)
        write_page()


def _left_out(without: str | None) -> frozenset[int]:
    return frozenset(int(number) for number in (without or "").split(",") if number)


def _tell_findings(findings: Sequence[Finding], runs: int, json: bool) -> None:
    """Print the broken promises. Raises Failure if there are any."""
    if not findings:
        return
    if not json:
        for finding in findings:
            typer.echo("\n".join(finding.lines()))
    raise Failure(f"{len(findings)} of {runs} runs broke a promise")


if __name__ == "__main__":
    run_command(trial_app, NAME)
