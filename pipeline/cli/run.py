"""`run`: one coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.gateway import beside, check_listen, read_address
from pipeline.cli.options import Config, LogForm, Root, Verbose
from pipeline.errors import WrongCall
from pipeline.logs import LogFormat


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
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="HOST:PORT at which Prometheus is answered.")
    ] = None,
    log_format: LogForm = LogFormat.TEXT,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", help="Where all is logged; by default beside the tables."),
    ] = None,
    verbose: Verbose = False,
    new_archive: Annotated[
        bool, typer.Option("--new-archive/--no-new-archive", hidden=True)
    ] = True,
) -> None:
    """Run the coordinator in the foreground, on a local Spark."""
    from pipeline.gateway.settings import gateway_settings
    from pipeline.node.preflight import check_start
    from pipeline.settings import load_settings

    settings = load_settings(config).with_node_id(node_id)
    check_start(root, settings)
    if gateway is not None:
        gateway_settings(settings)
        check_listen(gateway)
    if metrics is not None:
        check_listen(metrics)
        if metrics == gateway and read_address(metrics)[1] != 0:
            raise WrongCall(f"--gateway and --metrics cannot both listen at {metrics}")
    # Only now: it loads Spark.
    from pipeline.node.job import Logs
    from pipeline.node.job import run as run_job

    logs = Logs(log_format, verbose, log_file)
    measured = beside(root, metrics, None, log_format, verbose, "metrics")
    with beside(root, gateway, config, log_format, verbose), measured:
        status = run_job(root, settings, logs=logs, makes_archive=new_archive)
    raise SystemExit(status)
