"""`run`: one coordinator."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.gateway import beside
from pipeline.cli.options import Config, Root


def run(
    root: Root,
    config: Config = None,
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", min=0, help="Which of several coordinators of the root it is."),
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option("--gateway", help="HOST:PORT on which Kafka clients are served as well."),
    ] = None,
) -> None:
    """Run the coordinator in the foreground, on a local Spark."""
    from pipeline.node.job import run as run_job
    from pipeline.settings import load_settings

    settings = load_settings(config).with_node_id(node_id)
    with beside(root, gateway, config):
        status = run_job(root, settings)
    raise SystemExit(status)
