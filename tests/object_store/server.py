"""versitygw, an S3 server in Go, started on loopback over a folder."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_NAME = "versitygw"
_KEY, _SECRET = "tests", "tests-secret"
BUCKET = "bucket"


def find_server() -> str:
    """Return the path of versitygw: that of `VERSITYGW`, one on the PATH, or one built by Go.

    Building it takes some minutes once. Skips the test if it cannot be had.
    """
    found = os.environ.get("VERSITYGW") or shutil.which(_NAME)
    built = Path.home() / ".cache" / "group-coordinator" / _NAME
    if found is None and built.exists():
        found = str(built)
    if found is not None:
        return found
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip(f"{_NAME} is neither on the PATH nor in VERSITYGW, and there is no Go")
    environment = {**os.environ, "GOBIN": str(built.parent), "CGO_ENABLED": "0"}
    done = subprocess.run(
        [go, "install", _MODULE], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{_NAME} cannot be built: {done.stderr[-200:]}")
    return str(built)


def environment(port: int) -> dict[str, str]:
    """Return what a client of the server, or of a proxy before it, finds in its environment."""
    return {
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Server:
    """A running versitygw over a folder; `port` is where it listens."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process = subprocess.Popen(
            [find_server(), "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(folder)],
            env={**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Server:
        limit = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def make_bucket(self) -> None:
        """Create the bucket `BUCKET`; the environment is `environment`'s."""
        bucket = from_url(f"s3://{BUCKET}/", client_options={"allow_http": True})
        link = obstore.sign(bucket, "PUT", "", datetime.timedelta(seconds=60))
        urllib.request.urlopen(urllib.request.Request(link, method="PUT")).close()
