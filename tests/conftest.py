"""Fixtures that many tests share: a Spark session, and a root with empty tables."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from group_coordinator.pipeline.session.java import JavaMissing, check_java
from group_coordinator.pipeline.settings import load_settings
from tests import examples, roots
from tests.support.jvm import use_short_lived_jvms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tests with these markers start first, in this order, because they take the longest.
LONGEST = ("spark", "slow")
# The tiers above the default one. A test belongs to the last tier with a marker on it.
TIERS = ("full", "long")
# Four test processes, the shared Spark session and a coordinator need about this much memory.
NEEDED_MEMORY_GB = 6
_JVM_FILES = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Let property tests try more examples in the long tier, and let Ctrl-C reach the tests.

    A shell starts background jobs with SIGINT ignored. Tests of Ctrl-C, and the processes that
    they start, would wait forever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    examples.load_profile(asks_for(config, "long"))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the tier of the run, and what the machine lacks for it."""
    tiers = [tier for tier in TIERS if asks_for(config, tier)] or ["default"]
    return [f"tier: {', '.join(tiers)}", *(f"missing: {need}" for need in missing_needs(config))]


def missing_needs(config: pytest.Config) -> Iterator[str]:
    """Yield one line for each thing that tests with Spark need and this machine lacks."""
    if "not spark" in config.option.markexpr:
        return
    try:
        check_java()
    except JavaMissing as missing:
        yield str(missing)
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    if memory_gb < NEEDED_MEMORY_GB:
        yield f"{NEEDED_MEMORY_GB} GiB of memory; this machine has {memory_gb:.1f}: run with -n 1"


def asks_for(config: pytest.Config, marker: str) -> bool:
    """Return whether `-m` names the marker, other than after `not`."""
    return re.search(rf"(?<!\bnot )\b{marker}\b", config.option.markexpr) is not None


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: `default`, or the last of TIERS that marks it."""
    return next((tier for tier in reversed(TIERS) if item.get_closest_marker(tier)), "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the tiers that `-m` does not name; start with the longest tests.

    `-m "not full"` in addopts cannot do this, because a `-m` of the command line replaces it.
    """
    asked = [tier for tier in TIERS if asks_for(config, tier)]
    if "long" in asked:
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("long")
    selected, deselected = [], []
    for item in items:
        tier = tier_of(item)
        (selected if tier == "default" or tier in asked else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected
    if hasattr(config, "workerinput"):
        # If a process started a long file last, all others would wait for it.
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in LONGEST])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set options of JVMs for a short life."""
    if item.get_closest_marker("spark"):
        use_short_lived_jvms(jvm_files(item.config))


def jvm_files(config: pytest.Config) -> Path:
    """Return the folder of the JVMs' temporary files, which is deleted at the end of the run.

    It is in pytest's own folder, so that a later run deletes it if this one is killed.
    """
    if _JVM_FILES not in config.stash:
        # A fixture would be too late: those of a session start JVMs.
        folder = config._tmp_path_factory.mktemp("jvm")  # type: ignore[attr-defined]
        config.stash[_JVM_FILES] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return config.stash[_JVM_FILES]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign the tests to processes by `tests.side_by_side`, in the order of their collection."""
    from tests.side_by_side import StartsShared

    config.option.loadscopereorder = False
    return StartsShared(config, log)


@pytest.fixture(scope="session")
def refusing_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a JAVA_HOME with a Java that refuses to start a JVM."""
    java = tmp_path_factory.mktemp("java") / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'only a test marked spark or long starts a JVM' >&2\nexit 1\n")
    java.chmod(0o700)
    return java.parent.parent


@pytest.fixture(autouse=True)
def no_jvm_but_for_spark(
    request: pytest.FixtureRequest, refusing_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let tests selected by `-m "not spark"` fail if they start a JVM."""
    if not {"spark", "long"} & {mark.name for mark in request.node.iter_markers()}:
        monkeypatch.setenv("JAVA_HOME", str(refusing_java))


def delta_is_released() -> bool:
    """Return whether a Delta is released for this Spark, according to its package."""
    asked = [Requirement(text) for text in requires("delta-spark") or ()]
    return all(version("pyspark") in each.specifier for each in asked if each.name == "pyspark")


@pytest.fixture
def spark_with_delta(spark: SparkSession) -> SparkSession:
    """Return the session, for a test in which Spark itself reads or writes a Delta table."""
    if not delta_is_released():
        pytest.skip(f"there is no Delta for Spark {version('pyspark')}")
    return spark


@pytest.fixture
def light_spark(spark_with_delta: SparkSession) -> SparkSession:
    """Return a session, apart from the shared one, that reads small tables with few tasks."""
    from tests.frames import light_session

    return light_session(spark_with_delta)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session like a coordinator's, shared by all tests of the run."""
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
    """Return a folder with empty tables, to be copied."""
    return roots.empty_root()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a root with empty tables."""
    roots.make_tables(str(tmp_path))
    return str(tmp_path)
