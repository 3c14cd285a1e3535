"""The verbs `gateway` and `metrics`: they serve Kafka's protocol, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline import background
from group_coordinator.pipeline.cli.options import Config, LogForm, OwnRoot, Verbose
from group_coordinator.pipeline.errors import CannotListen, UsageError, address
from group_coordinator.pipeline.gateway_settings import ALL_ADDRESSES
from group_coordinator.pipeline.hosts import is_loopback
from group_coordinator.pipeline.interrupt import SignalEvent
from group_coordinator.pipeline.logs import LogFormat, ProcessLog

if TYPE_CHECKING:
    from group_coordinator.coordinator.config import GroupCoordinatorConfig
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts
    from group_coordinator.pipeline.gateway_settings import GatewaySettings, Listener

log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 15.0
_POLL_S = 1.0
# The garbage collector runs after so many new objects (Python's default: 700).
_YOUNG_OBJECTS = 200_000
# How long a thread keeps the interpreter while others wait, s (Python's default: 0.005).
_SWITCH_S = 0.0005
_LISTEN = "127.0.0.1:9092"
# The niceness of `metrics`: on a busy machine the coordinator's batches take precedence.
_NICENESS = 10


def read_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT into host and port; an IPv6 address is in brackets. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_advertised(listen: str, advertise: str | None) -> tuple[str, int] | None:
    """Return the advertised host and port; None if clients use the address of `listen`.

    Raises UsageError if `listen` means all addresses, because clients cannot connect to it.
    """
    if advertise is not None:
        return read_address(advertise)
    if read_address(listen)[0] in ALL_ADDRESSES:
        raise UsageError(
            f"clients cannot connect to {listen}, all addresses: add --advertise HOST:PORT"
        )
    return None


def check_listen(text: str) -> None:
    """Raise UsageError unless the text is HOST:PORT, CannotListen if it cannot be bound."""
    host, port = read_address(text)
    try:
        for family, kind, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
    except OSError as error:
        raise CannotListen(host, port, error) from error


def log_metrics_url(where: str, host: str, what: str) -> None:
    """Log the URL of the metrics and their subject; warn if other hosts can read them."""
    log.info("metrics: http://%s/metrics serves the metrics of %s", where, what)
    if not is_loopback(host):
        log.warning(
            "metrics: %s is not a loopback address: other hosts read them without authentication",
            host,
        )


def gateway(
    root: OwnRoot,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            help="HOST:PORT to listen on; 0.0.0.0 accepts other hosts. Default: the setting "
            f"listeners, else {_LISTEN}.",
        ),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option("--advertise", help="HOST:PORT to which clients are to connect.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="HOST:PORT of metrics of refused requests, for Prometheus."),
    ] = None,
    metrics_host: Annotated[
        list[str] | None,
        typer.Option("--metrics-host", help="As --host of the verb metrics; may be repeated."),
    ] = None,
    config: Config = None,
    log_format: LogForm = LogFormat.TEXT,
    verbose: Verbose = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Serve unmodified Kafka clients: the root's coordinator decides their requests."""
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts
    from group_coordinator.pipeline.settings import load_settings

    ProcessLog(log_format, verbose)
    settings = load_settings(config)
    listeners = read_listeners(settings.gateway, listen, advertise)
    refused = RefusalCounts()
    with _serving_refusal_metrics(refused, metrics, metrics_host or ()):
        asyncio.run(_serve(root, listeners, settings.gateway, settings.group, refused, until_eof))


@contextmanager
def _serving_refusal_metrics(
    refused: RefusalCounts, metrics: str | None, names: Iterable[str]
) -> Iterator[None]:
    if metrics is None:
        yield
        return
    from group_coordinator.pipeline.gateway.refusal_metrics import RefusalMetrics
    from group_coordinator.pipeline.monitor.serving import serving_metrics

    host, port = read_address(metrics)
    with serving_metrics(RefusalMetrics(refused), host, port, names) as served:
        log_metrics_url(address(host, served), host, "refused requests")
        yield


def read_listeners(
    settings: GatewaySettings, listen: str | None, advertise: str | None
) -> tuple[Listener, ...]:
    """Return the listeners of the settings; without any, the listener that the options describe.

    Raises UsageError if both name listeners, or for an invalid address.
    """
    named = settings.configured_listeners
    if not named:
        where = listen or _LISTEN
        told = read_advertised(where, advertise)
        return (settings.single_listener(read_address(where), told),)
    if listen is not None or advertise is not None:
        raise UsageError(
            "--listen and --advertise cannot be used with the setting listeners of [gateway]"
        )
    return named


async def _serve(
    root: str,
    listeners: tuple[Listener, ...],
    settings: GatewaySettings,
    group: GroupCoordinatorConfig,
    refused: RefusalCounts,
    until_eof: bool,
) -> None:
    from group_coordinator.pipeline.gateway.server import running_gateway

    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop_requested.set)
    if until_eof:

        def stop() -> None:
            loop.call_soon_threadsafe(stop_requested.set)

        background.run_at_eof(sys.stdin.fileno(), "input", stop)
    if not await _wait_for_tables(root, stop_requested):
        return
    async with running_gateway(root, listeners, settings, group, refused) as brokers:
        places = [f"{each.host}:{each.port}" for each in brokers.own_by_listener.values()]
        told = ", ".join(places)
        log.info("gateway: broker %d at %s serves %s", brokers.own.node_id, told, root)
        lines = [line for each in listeners for line in authentication_lines(settings, each)]
        for level, line in (*lines, (logging.INFO, _acl_line(root))):
            log.log(level, "gateway: %s", line)
        tune_interpreter()
        await stop_requested.wait()
    # Unfreeze, because libraries report objects that are not collected at exit as leaks.
    gc.unfreeze()
    log.info("gateway: stopped; requests in flight were answered first")


def tune_interpreter() -> None:
    """Set the interpreter for an event loop beside threads that compute.

    Threads yield to the loop sooner: it releases the interpreter lock in every system call, and
    waits up to `_SWITCH_S` to get it back, for example from a large Fetch in a thread. The garbage
    collector runs less often. It would scan the waiting requests again and again, and reference
    counts free an answered request at once (`pipeline.gateway.connection`).
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def authentication_lines(settings: GatewaySettings, listener: Listener) -> list[tuple[int, str]]:
    """Return the log lines about a listener's users, each with its level."""
    from group_coordinator.pipeline.gateway_settings import PLAIN
    from group_coordinator.schemas.acls import ANONYMOUS

    if listener.requires_authentication:
        told = f"{listener}: clients authenticate as users of {settings.users_file}"
        lines = [(logging.INFO, told)]
        if not listener.has_tls and PLAIN in settings.mechanisms:
            warning = "without TLS the mechanism PLAIN sends passwords in clear text"
            lines.append((logging.WARNING, warning))
        return lines
    why = "" if settings.users_file else " (no users.file)"
    told = f"{listener}: clients need no authentication and are {ANONYMOUS}{why}"
    lines = [(logging.INFO, told)]
    host = listener.address.host
    if not is_loopback(host):
        warning = (
            f"{host} IS NOT A LOOPBACK ADDRESS AND {listener} HAS NO AUTHENTICATION: a client that "
            "reaches the port may do all that ACLs allow to all users, without ACLs everything"
        )
        lines.append((logging.WARNING, warning))
    return lines


def _acl_line(root: str) -> str:
    from group_coordinator.pipeline.tables import read_acls

    acls = read_acls(root)
    if acls is None:
        return "there are no ACLs: every operation is allowed to every user (see `acls add`)"
    return f"{len(acls)} ACLs are in force"


async def _wait_for_tables(root: str, stop_requested: asyncio.Event) -> bool:
    """Wait until a coordinator has run on the root; return False if asked to stop before that."""
    from group_coordinator.pipeline.tables import has_table
    from group_coordinator.schemas.tables import RESPONSES

    told = False
    while not has_table(root, RESPONSES):
        if not told:
            log.info("gateway: waiting for the first start of a coordinator on %s", root)
            told = True
        try:
            await asyncio.wait_for(stop_requested.wait(), _POLL_S)
        except TimeoutError:
            continue
        return False
    return True


@contextmanager
def serving_process(
    root: str, verb: str, listen: str | None, options: Iterable[str]
) -> Iterator[None]:
    """Run a verb that serves in a separate process; do nothing if `listen` is None.

    The process ends with the block, or at the end of its input, so it does not outlive a parent
    process that is killed.
    """
    if listen is None:
        yield
        return
    command = [
        sys.executable,
        "-m",
        "group_coordinator",
        verb,
        "--root",
        root,
        "--listen",
        listen,
        *options,
    ]
    process = subprocess.Popen([*command, "--until-eof"], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
