"""What many tests need, made once: a Spark session, and a root with empty tables."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from group_coordinator.pipeline.settings import load_settings
from tests import examples, roots
from tests.support.jvm import use_short_lived_jvms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The markers of the tests that take longest, in the order in which processes begin with them.
LONGEST = ("spark", "slow")


def pytest_configure(config: pytest.Config) -> None:
    """Have property tests try more examples if the tests marked `long` are asked for.

    A shell has the jobs that it runs in the background ignore SIGINT: tests of Ctrl-C, and the
    processes that they start, would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    examples.load_profile(asks_for(config, "long"))


def asks_for(config: pytest.Config, marker: str) -> bool:
    """Whether `-m` names the marker, other than after `not`."""
    return re.search(rf"(?<!\bnot )\b{marker}\b", config.option.markexpr) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `long` unless `-m` asks for them; begin with what takes longest.

    Not by `-m "not long"` in addopts: `-m` on the command line would take its place.
    """
    if asks_for(config, "long"):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("long")
    else:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        # Of one process that begins a long file when the others have ended, all would wait.
        items.sort(key=lambda item: [item.get_closest_marker(each) is None for each in LONGEST])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have JVMs start fast, by the archive of their classes if it has been made meanwhile."""
    if item.get_closest_marker("spark"):
        use_short_lived_jvms()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out the tests as `tests.side_by_side` says, in the order of their collection."""
    from tests.side_by_side import StartsShared

    config.option.loadscopereorder = False
    return StartsShared(config, log)


@pytest.fixture(scope="session")
def refusing_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JAVA_HOME whose Java only says that it starts no JVM."""
    java = tmp_path_factory.mktemp("java") / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'only a test marked spark or long starts a JVM' >&2\nexit 1\n")
    java.chmod(0o700)
    return java.parent.parent


@pytest.fixture(autouse=True)
def no_jvm_but_for_spark(
    request: pytest.FixtureRequest, refusing_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have no test start a JVM that `-m "not spark"` selects."""
    if not {"spark", "long"} & {mark.name for mark in request.node.iter_markers()}:
        monkeypatch.setenv("JAVA_HOME", str(refusing_java))


def delta_is_released() -> bool:
    """Whether a Delta is released for this Spark, as its package says."""
    asked = [Requirement(text) for text in requires("delta-spark") or ()]
    return all(version("pyspark") in each.specifier for each in asked if each.name == "pyspark")


@pytest.fixture
def spark_with_delta(spark: SparkSession) -> SparkSession:
    """The session, for a test that has Spark itself read or write a Delta table."""
    if not delta_is_released():
        pytest.skip(f"there is no Delta for Spark {version('pyspark')}")
    return spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a coordinator starts it, one for all tests of the run."""
    from group_coordinator.pipeline.session.start import SessionStart
    from group_coordinator.pipeline.stream import WORKER_IMPORTS

    root = str(tmp_path_factory.mktemp("session"))
    session = SessionStart(
        load_settings(),
        root,
        master="local[2]",
        delta=delta_is_released(),
        imports=WORKER_IMPORTS,
    ).finish()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def empty_root() -> Path:
    """A folder with empty tables, to be copied."""
    return roots.empty_root()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with empty tables."""
    roots.make_tables(str(tmp_path))
    return str(tmp_path)
