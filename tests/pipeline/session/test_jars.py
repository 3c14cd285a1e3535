"""Packages are resolved once on a machine, by one start at a time; later starts name the files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from group_coordinator.pipeline.session import jars
from group_coordinator.pipeline.session.jars import start_with_jars

AT_ONCE = 4


class Session:
    """What a start returns: a session that knows its jars, as Spark's configuration does."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    @property
    def sparkContext(self) -> Session:
        return self

    def getConf(self) -> dict[str, str]:
        return self._settings


class Spark:
    """Starts sessions: resolves packages into a folder, as Ivy does, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[dict[str, str]] = []
        self.resolving = threading.Lock()

    def start(self, settings: dict[str, str]) -> Session:
        self.started.append(settings)
        named = settings.get("spark.jars", "")
        if packages := settings.get("spark.jars.packages"):
            assert self.resolving.acquire(blocking=False), "two resolve at once"
            time.sleep(0.05)
            found = [self.folder / f"{package} of mine.jar" for package in packages.split(",")]
            for jar in found:
                jar.touch()
            named = ",".join(filter(None, [named, *(jar.as_uri() for jar in found)]))
            self.resolving.release()
        return Session({**settings, "spark.jars": named})

    def resolved(self) -> int:
        return sum("spark.jars.packages" in settings for settings in self.started)


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    monkeypatch.setattr(jars, "runs_jvm", lambda: False)
    return Spark(tmp_path)


@pytest.fixture
def start(spark: Spark, tmp_path: Path) -> Callable[..., str]:
    """Start a session with packages; return its jars."""

    def start_one(packages: str = "a,b", **others: str) -> str:
        named = {f"spark.jars.{key}": value for key, value in others.items()}
        wanted = {"spark.jars.packages": packages, "spark.jars.ivy": str(tmp_path), **named}
        return start_with_jars(wanted, spark.start).sparkContext.getConf().get("spark.jars")

    return start_one


def test_a_second_start_names_the_files_that_the_first_one_found(spark: Spark, start) -> None:
    first = start()
    assert first.count(".jar") == 2
    assert start() == first
    assert spark.resolved() == 1


def test_other_packages_and_other_excludes_are_resolved(spark: Spark, start) -> None:
    start()
    start("a")
    start(excludes="c")
    assert spark.resolved() == 3


def test_a_file_that_is_gone_is_resolved_again(spark: Spark, start, tmp_path: Path) -> None:
    start()
    (tmp_path / "b of mine.jar").unlink()
    assert start() == start()
    assert spark.resolved() == 2


def test_what_a_power_cut_left_of_the_list_is_no_list(spark: Spark, start, tmp_path: Path) -> None:
    start()
    (found,) = tmp_path.glob("*.json")
    found.write_bytes(b"")
    start()
    assert spark.resolved() == 2


def test_starts_at_once_resolve_one_after_the_other_and_only_once(spark: Spark, start) -> None:
    together = threading.Barrier(AT_ONCE)

    def start_together(_number: int) -> str:
        together.wait()
        return start()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert len(set(pool.map(start_together, range(AT_ONCE)))) == 1
    assert spark.resolved() == 1


def test_a_start_that_fails_is_not_remembered(spark: Spark, start, monkeypatch) -> None:
    def fail(_settings: dict[str, str]) -> Session:
        raise ConnectionError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(spark, "start", fail)
        with pytest.raises(ConnectionError):
            start()
    assert start().count(".jar") == 2
    assert spark.resolved() == 1


def test_a_jvm_that_runs_already_says_nothing_of_packages(spark: Spark, start, monkeypatch) -> None:
    monkeypatch.setattr(jars, "runs_jvm", lambda: True)
    start()
    start()
    assert spark.resolved() == 2


def test_without_packages_nothing_is_resolved(spark: Spark, start, tmp_path: Path) -> None:
    assert start("") == ""
    assert not list(tmp_path.iterdir())
