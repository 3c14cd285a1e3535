"""An S3 server for each test, and the proxy that all requests pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.delta import object_store
from tests.object_store.proxy import Proxy
from tests.object_store.server import BUCKET, Server, environment


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before an S3 server with one bucket, found in the environment."""
    with Server(tmp_path / "s3") as server, Proxy(("127.0.0.1", server.port)) as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        # Each test has another endpoint.
        object_store._bucket.cache_clear()
        server.make_bucket()
        del proxy.asked[:]
        yield proxy
        object_store._bucket.cache_clear()


@pytest.fixture
def root(proxy: Proxy) -> str:
    """A root in the bucket."""
    return f"s3a://{BUCKET}/groups"
