"""A gateway before a coordinator without Spark, one for all tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.bench.kafka_libs import kafka_libs
from pipeline.gateway.brokers import Broker
from pipeline.tables.topics import create_topic
from tests.pipeline.gateway.kafka_tools.running import LIBS
from tests.pipeline.gateway.running import coordinator, gateway


@pytest.fixture(scope="module")
def broker(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic, `orders`, of four partitions."""
    root = str(tmp_path_factory.mktemp("gateway"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    create_topic(root, "orders", 4)
    with coordinator(root), gateway(root) as running:
        yield running


@pytest.fixture(scope="session")
def libs() -> Path:
    """The folder of Kafka's jars, which are fetched if it is empty."""
    assert LIBS is not None
    return kafka_libs(Path(LIBS), print)
