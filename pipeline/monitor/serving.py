"""HTTP server that Prometheus scrapes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

from group_coordinator.pipeline.errors import CannotListen
from group_coordinator.pipeline.hosts import HostNames, local_host_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.registry import Collector

PATH = "/metrics"
_OTHER_NAME = "The name in the Host header is not accepted: start the server with --host NAME.\n"


class _MetricsOnly:
    """A WSGI filter that passes only `PATH`, requested under a name of this server.

    prometheus_client alone would answer any path and any Host header.
    """

    def __init__(self, app: WSGIApplication, names: HostNames) -> None:
        self._app = app
        self._names = names

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request: 421 for another host name, 404 for another path."""
        if not self._names.accepts(environ.get("HTTP_HOST", "")):
            return _refuse(start, "421 Misdirected Request", _OTHER_NAME)
        if environ["PATH_INFO"] != PATH:
            return _refuse(start, "404 Not Found", f"Metrics are at {PATH}.\n")
        return self._app(environ, start)


def _refuse(start: StartResponse, status: str, why: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [why.encode()]


@contextmanager
def serving_metrics(
    collector: Collector, host: str, port: int, names: Iterable[str] = ()
) -> Iterator[int]:
    """Serve the collector's metrics at `http://HOST:PORT/metrics` during the block; yield the port.

    For port 0 the system chooses a free one. The Host header must be an address, a name of this
    machine, `host`, or one of `names`. Raises CannotListen.
    """
    registry = CollectorRegistry()
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    app = server.get_app()
    assert app is not None
    # The registry is empty until the filter is in place: an earlier request gets no metrics.
    server.set_app(_MetricsOnly(app, HostNames([host, *local_host_names(), *names])))
    registry.register(collector)
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
