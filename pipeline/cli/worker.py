"""The verb `worker`: it runs one of the workers that share a table's rows."""

from __future__ import annotations

from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import OwnRoot, print_progress
from group_coordinator.pipeline.cli.printing import to_json_line


def worker(
    root: OwnRoot,
    group: Annotated[str, typer.Option("--group", help="The group whose workers share the rows.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic of the table.")],
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Rows in one batch at most.")
    ] = 1_000,
    exec_: Annotated[
        str | None,
        typer.Option("--exec", help="A shell command that takes each batch as JSON Lines."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End at the end of the table.")] = False,
    consumer_property: Annotated[
        list[str] | None,
        typer.Option("--consumer-property", help="One of Kafka's settings, as key=value."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Report progress as JSON Lines.")] = False,
) -> None:
    """Process a table's rows, shared by partition with the other workers of the group.

    The rows go to stdout as JSON Lines, or to a command; progress goes to stderr. Every row is
    output at least once.
    """
    from group_coordinator.pipeline.client.worker import run_worker, to_command, to_stdout

    run_worker(
        root,
        group,
        topic,
        output=to_stdout if exec_ is None else to_command(exec_),
        batch_rows=batch_rows,
        once=once,
        settings=_properties(consumer_property or []),
        on_report=lambda report: print_progress(to_json_line(report) if json else report.line()),
    )


def _properties(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--consumer-property {text!r} is not key=value")
        found[key] = value
    return found
