"""JVMs that live for seconds are started with options of their own, unless the user has some."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import jvm_files
from tests.support.jvm import JAVA_OPTIONS, archive_path, use_short_lived_jvms


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv(JAVA_OPTIONS, "")
    monkeypatch.delenv(JAVA_OPTIONS)
    return tmp_path


def options(files: Path = Path("files")) -> str:
    use_short_lived_jvms(files)
    return os.environ[JAVA_OPTIONS]


def test_an_archive_is_used_as_soon_as_there_is_one(cache: Path) -> None:
    assert "SharedArchiveFile" not in options()
    archive = archive_path()
    assert cache in archive.parents
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in options()


def test_options_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS, "-Xmx1g")
    assert options() == "-Xmx1g"


def test_what_a_killed_jvm_leaves_is_in_the_folder_of_the_run(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = jvm_files(pytestconfig)
    assert files.is_dir()
    assert tmp_path_factory.getbasetemp() in files.parents
    assert f'"-Djava.io.tmpdir={files}"' in options(files)


def test_another_java_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path()
    monkeypatch.setenv("JAVA_HOME", "/somewhere/else")
    assert archive_path() != before
