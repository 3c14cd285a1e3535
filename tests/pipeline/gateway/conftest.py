"""A gateway before a coordinator without Spark, one for all tests of a module; a certificate."""

from __future__ import annotations

import gc
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.pipeline.gateway.kafka_tools.running import jars
from tests.pipeline.gateway.running import coordinator, gateway


@pytest.fixture(scope="module")
def broker(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic, `orders`, of four partitions."""
    root = str(tmp_path_factory.mktemp("gateway"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    create_topic(root, "orders", 4)
    with coordinator(root), gateway(root) as running:
        yield running


@pytest.fixture
def kafka_python() -> Iterator[ExitStack]:
    """Close the test's clients of kafka-python at its end.

    A client that is closed while a request waits to be written leaves its socket to the garbage
    collector, which would report it in a later test.
    """
    with ExitStack() as clients:
        yield clients
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            clients.close()
            gc.collect()


@pytest.fixture(scope="session")
def libs() -> Path:
    """The folder of Kafka's jars."""
    return jars()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the loopback address, signed by itself; its key lies beside it."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subprocess.run(
        [
            *command.split(),
            *("-keyout", folder / "key.pem", "-out", folder / "certificate.pem"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder / "certificate.pem"
