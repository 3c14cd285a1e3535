"""The verbs `run` and `package`: a coordinator on a local Spark, and its files for a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.cli.gateway import (
    check_listen,
    read_address,
    read_advertised,
    serving_process,
)
from group_coordinator.pipeline.cli.options import Config, LogForm, Root, Verbose
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.logs import LogFormat


def run(
    root: Root,
    config: Config = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            "--node-id", min=0, help="The id of this node, if the root has several coordinators."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Stop another process that runs this node, and continue."),
    ] = False,
    gateway: Annotated[
        str | None,
        typer.Option("--gateway", help="Also serve Kafka clients, on HOST:PORT."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", help="HOST:PORT to which clients of --gateway are to connect."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Also serve metrics for Prometheus, on HOST:PORT."),
    ] = None,
    metrics_host: Annotated[
        list[str] | None,
        typer.Option("--metrics-host", help="As --host of the verb metrics; may be repeated."),
    ] = None,
    log_format: LogForm = LogFormat.TEXT,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", help="The file of the full log; default: in the root's folder."),
    ] = None,
    verbose: Verbose = False,
    new_archive: Annotated[
        bool, typer.Option("--new-archive/--no-new-archive", hidden=True)
    ] = True,
) -> None:
    """Run the coordinator in the foreground, on a local Spark."""
    from group_coordinator.pipeline.node.preflight import check_start
    from group_coordinator.pipeline.settings import load_settings

    settings = load_settings(config).with_node_id(node_id)
    check_start(root)
    if gateway is not None:
        if settings.gateway.configured_listeners:
            raise UsageError(
                "--gateway has one listener: run the verb `gateway` for the listeners of [gateway]"
            )
        check_listen(gateway)
        told = read_advertised(gateway, advertise) or read_address(gateway)
        settings = settings.with_advertised_address(*told)
    elif advertise is not None:
        raise UsageError("--advertise needs a gateway: add --gateway HOST:PORT")
    if metrics is not None:
        check_listen(metrics)
        if metrics == gateway and read_address(metrics)[1] != 0:
            raise UsageError(f"--gateway and --metrics cannot both listen at {metrics}")
    # Imported last, because it loads Spark.
    from group_coordinator.pipeline.node.job import Logs
    from group_coordinator.pipeline.node.job import run as run_job

    logs = Logs(log_format, verbose, log_file)
    shown = ["--log-format", log_format.value, *(["--verbose"] if verbose else [])]
    served = [*shown, *_option("--config", config), *_option("--advertise", advertise)]
    scraped = [*shown, *(word for name in metrics_host or () for word in ("--host", name))]
    with (
        serving_process(root, "gateway", gateway, served),
        serving_process(root, "metrics", metrics, scraped),
    ):
        status = run_job(root, settings, logs=logs, makes_archive=new_archive, takes_over=take_over)
    raise SystemExit(status)


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def package(
    out: Annotated[Path, typer.Option("--out", help="The folder to write into.")] = Path("dist"),
    root: Annotated[str, typer.Option("--root", help="The root in the printed command.")] = "ROOT",
) -> None:
    """Write the files that spark-submit ships to a cluster: an archive of packages, and job.py.

    The printed command names the jars that Spark needs. If the root is in an object store, it also
    names the store's jars.
    """
    from group_coordinator.pipeline.node.needed import ARCHIVE_FOLDER
    from group_coordinator.pipeline.node.packaging import write_package
    from group_coordinator.pipeline.session.checkpoint_location import store_packages
    from group_coordinator.pipeline.session.spark_settings import packages

    done = write_package(out, lambda line: typer.echo(line, err=True))
    size = done.archive.stat().st_size
    typer.echo(f"{done.archive}: {len(done.packages)} packages, {size / 1e6:.0f} MB")
    typer.echo("")
    typer.echo("PYSPARK_DRIVER_PYTHON=$(command -v python) PYSPARK_PYTHON=python3 \\")
    typer.echo("spark-submit --master MASTER \\")
    typer.echo(f"    --packages {','.join([packages(), *store_packages(root)])} \\")
    typer.echo(f"    --archives {done.archive}#{ARCHIVE_FOLDER} \\")
    typer.echo(f"    --conf spark.executorEnv.PYTHONPATH={ARCHIVE_FOLDER} \\")
    typer.echo(f"    {done.job} --root {root}")
