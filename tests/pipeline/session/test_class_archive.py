"""Which archive of Spark's classes a start uses, and when it uses none."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.session import start
from group_coordinator.pipeline.session.java import (
    ARCHIVE_SETTING,
    DRIVER_OPTIONS,
    JAVA_OPTIONS,
    archive_path,
    may_use_archive,
)
from group_coordinator.pipeline.session.spark_settings import read_defaults
from group_coordinator.pipeline.session.start import missing_archive
from group_coordinator.pipeline.settings import Settings

JAVA = 'openjdk version "17.0.15" 2025-04-15'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(JAVA_OPTIONS, "")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(start, "check_java", lambda: JAVA)
    return tmp_path


def test_another_java_has_another_archive(cache: Path) -> None:
    other = archive_path(JAVA.replace("17.0.15", "17.0.16"))
    assert archive_path(JAVA) != other
    assert archive_path(JAVA).parent == other.parent == cache / "group-coordinator"
    assert archive_path(JAVA).stem.rpartition("-")[0] == other.stem.rpartition("-")[0]


def test_by_default_it_is_used() -> None:
    assert may_use_archive(read_defaults())


def test_the_setting_turns_it_off() -> None:
    assert not may_use_archive({ARCHIVE_SETTING: "false"})
    assert missing_archive(Settings(spark={ARCHIVE_SETTING: "false"}), "/r") is None


@pytest.mark.parametrize("options", ["-XX:ArchiveClassesAtExit=a", "-XX:SharedArchiveFile=a"])
def test_an_archive_of_the_user_s_own_stays(options: str) -> None:
    assert not may_use_archive({DRIVER_OPTIONS: options})


def test_options_for_every_jvm_may_contradict_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS, "-XX:+UseSerialGC")
    assert not may_use_archive({})


def test_it_is_missing_until_it_is_made() -> None:
    archive = missing_archive(Settings(), "/r")
    assert archive == archive_path(JAVA)
    archive.parent.mkdir()
    archive.touch()
    assert missing_archive(Settings(), "/r") is None


def test_under_spark_submit_the_jvm_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert missing_archive(Settings(), "/r") is None
