"""The verb `metrics`: it serves metrics of the tables to Prometheus."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline import background
from group_coordinator.pipeline.cli.gateway import check_listen, log_metrics_url, read_address
from group_coordinator.pipeline.cli.options import LogForm, OwnRoot, Verbose
from group_coordinator.pipeline.errors import address
from group_coordinator.pipeline.interrupt import SignalEvent
from group_coordinator.pipeline.logs import LogFormat, ProcessLog

# On a busy machine the coordinator's batches take precedence.
_NICENESS = 10


def metrics(
    root: OwnRoot,
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT to listen on; 0.0.0.0 accepts other hosts.")
    ] = "127.0.0.1:9308",
    cluster_name: Annotated[
        str | None,
        typer.Option(help="The label cluster_name; by default the name of the root's folder."),
    ] = None,
    max_groups: Annotated[
        int, typer.Option(min=0, help="The largest number of groups with their own series.")
    ] = 1_000,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Another accepted name in a Host header; may be repeated."),
    ] = None,
    log_format: LogForm = LogFormat.TEXT,
    verbose: Verbose = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Serve metrics of the groups, topics and tables under http://HOST:PORT/metrics."""
    from group_coordinator.pipeline.monitor.metrics import MetricsSettings, RootMetrics
    from group_coordinator.pipeline.monitor.serving import serving_metrics

    ProcessLog(log_format, verbose)
    check_listen(listen)
    listened, port = read_address(listen)
    settings = MetricsSettings(cluster_name or Path(root.rstrip("/")).name, max_groups)
    os.nice(_NICENESS)
    stop_requested = SignalEvent()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop_requested.set())
    if until_eof:
        background.run_at_eof(sys.stdin.fileno(), "input", stop_requested.set)
    with serving_metrics(RootMetrics(root, settings), listened, port, host or ()) as served:
        log_metrics_url(address(listened, served), listened, root)
        stop_requested.wait()
