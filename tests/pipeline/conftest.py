"""One Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.settings import load_settings
from pipeline.stream.session import create_session
from pipeline.tables.store import ensure_tables


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    root = str(tmp_path_factory.mktemp("session"))
    session = create_session(load_settings(), root, master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def root(tmp_path) -> str:
    """A root with empty tables."""
    ensure_tables(str(tmp_path))
    return str(tmp_path)
