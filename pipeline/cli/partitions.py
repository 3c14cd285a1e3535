"""The verbs `partitions` and `nodes`: which coordinator owns which offsets partition, and moves."""

from __future__ import annotations

from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import Root, print_progress
from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_structs

partitions_app = typer.Typer(
    help="Show the owners of the offsets partitions, and move partitions.", no_args_is_help=True
)


@partitions_app.command("list")
def partitions_list(root: Root, format_: Format = OutputFormat.TABLE) -> None:
    """List every offsets partition, the node that owns it, and whether that node is alive."""
    from group_coordinator.pipeline.ownership.partitions import PartitionRow, list_partitions

    print_structs(format_, PartitionRow, list_partitions(root))


@partitions_app.command("move")
def partitions_move(
    partition: int,
    root: Root,
    to: Annotated[int | None, typer.Option("--to", help="The id of the new owner.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel a pending move.")] = False,
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout", min=0, help="How long to wait for the move, ms; 0 does not wait."
        ),
    ] = 60_000,
) -> None:
    """Move a partition to another node, or cancel a move that has not begun."""
    from group_coordinator.pipeline.ownership import partitions

    if cancel == (to is not None):
        raise typer.BadParameter("give either --to NODE or --cancel")
    decisions = partitions.open_decisions(root)
    if to is None:
        partitions.cancel(decisions, partition)
        typer.echo(f"the move of partition {partition} is cancelled")
        return
    partitions.move(decisions, partition, to)
    if not timeout:
        typer.echo(f"partition {partition} will move to node {to}")
        return
    partitions.await_move(decisions, partition, to, timeout / 1000, print_progress)
    typer.echo(f"partition {partition} is at node {to}")


def nodes(root: Root) -> None:
    """Describe each coordinator: whether it is alive, and which offsets partitions it owns."""
    from group_coordinator.pipeline.ownership.partitions import describe_nodes

    for line in describe_nodes(root):
        typer.echo(line)
