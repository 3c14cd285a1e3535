"""JVMs that live for seconds are started with options of their own, unless the user has some."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.class_archive import ArchiveMaker
from tests.ends import check_end
from tests.support.jvm import VARIABLE, archive_path, use_short_lived_jvms


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    return tmp_path


def options() -> str:
    use_short_lived_jvms()
    return os.environ[VARIABLE]


def test_an_archive_is_used_as_soon_as_there_is_one(cache: Path) -> None:
    assert "SharedArchiveFile" not in options()
    archive = archive_path()
    assert cache in archive.parents
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in options()


def test_options_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-Xmx1g")
    assert options() == "-Xmx1g"


def test_another_java_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path()
    monkeypatch.setenv("JAVA_HOME", "/somewhere/else")
    assert archive_path() != before


def program(folder: Path, line: str) -> str:
    """A program that does something else than make an archive."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o700)
    return str(path)


def test_a_maker_makes_none_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    archive_path().parent.mkdir(parents=True)
    archive_path().touch()
    maker = ArchiveMaker()
    maker.begin()
    maker.end()


def test_an_archive_that_was_not_made_fails_the_run(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(cache, "exit 3"))
    maker = ArchiveMaker()
    maker.begin()
    assert maker.process is not None
    maker.process.wait()
    with pytest.raises(RuntimeError, match="status 3"):
        maker.end()


def test_a_maker_ends_with_the_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program(cache, "exec sleep 60"))
    maker = ArchiveMaker()
    maker.begin()
    assert maker.process is not None
    assert maker.process.poll() is None
    maker.end()
    check_end(maker.process.returncode, expected=-signal.SIGTERM)
