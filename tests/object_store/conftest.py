"""A server of each store for all tests, and for each test a proxy for all its requests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from group_coordinator.pipeline.delta import bucket
from tests.object_store.proxy import Proxy
from tests.object_store.server import Server
from tests.object_store.servers import SERVERS


@pytest.fixture(scope="session", params=list(SERVERS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Yield a server of a store; tests have different folders of its bucket."""
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy in front of the server; the environment has its address."""
    with Proxy(("127.0.0.1", server.port)) as proxy:
        proxy.translate, proxy.answered = server.translated, server.answered
        for name, value in server.environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        # Each test has another endpoint.
        bucket.bucket_of.cache_clear()
        yield proxy
        bucket.bucket_of.cache_clear()


@pytest.fixture
def root(proxy: Proxy, server: Server) -> str:
    """Return a root in the bucket."""
    return server.uri(f"{uuid.uuid4()}/groups")
