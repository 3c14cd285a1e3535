"""Serving a root's metrics over HTTP, as Prometheus asks for them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

from group_coordinator.pipeline.errors import CannotListen
from group_coordinator.pipeline.monitor.metrics import MetricsSettings, RootMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def serving_metrics(root: str, host: str, port: int, settings: MetricsSettings) -> Iterator[int]:
    """Serve `http://HOST:PORT/metrics` during the block, and yield the port: port 0 is any.

    Raises CannotListen.
    """
    registry = CollectorRegistry()
    registry.register(RootMetrics(root, settings))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
