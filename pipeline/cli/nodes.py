"""The verb `nodes`: it describes the coordinators of a root."""

from __future__ import annotations

import typer

from group_coordinator.pipeline.cli.options import Root


def nodes(root: Root) -> None:
    """Describe each coordinator: whether it is alive, and which offsets partitions it owns."""
    from group_coordinator.pipeline.ownership.listing import describe_nodes

    for line in describe_nodes(root):
        typer.echo(line)
