"""The archive of Spark's classes is made once, by one process, and is whole or not there."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from pipeline.errors import Failure
from pipeline.node import archive_maker
from pipeline.node.archive_maker import ArchiveMaker, forget_others, make_archive
from tests.waiting import wait_until

WAIT_S = 30.0


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "coordinator-0123abcd-new.jsa"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, archive: Path) -> list[str]:
    """The options of the JVMs that were run, each of which writes its archive."""
    ran: list[str] = []

    def record(folder: Path, options: str) -> None:
        ran.append(options)
        (folder / archive.name).write_text("classes")

    monkeypatch.setattr(archive_maker, "_record", record)
    return ran


def files(archive: Path) -> set[str]:
    return {file.name for file in archive.parent.iterdir()}


def test_it_is_made_once(archive: Path, recorded: list[str]) -> None:
    assert make_archive(archive, "-Xint")
    assert archive.read_text() == "classes"
    assert recorded[0].startswith("-Xint ")
    assert "-XX:ArchiveClassesAtExit=" in recorded[0]
    assert not make_archive(archive)
    assert len(recorded) == 1
    assert files(archive) == {archive.name, "coordinator-0123abcd-new.lock"}


def test_of_two_that_start_at_once_one_makes_it(archive: Path, recorded: list[str]) -> None:
    archive.parent.mkdir()
    with archive.with_suffix(".lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make_archive(archive)
    assert not recorded
    assert make_archive(archive), "the other one was ended before it was done"


@pytest.mark.parametrize("failure", [Failure("the coordinator ended"), KeyboardInterrupt()])
def test_one_that_was_cut_off_is_none(
    archive: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def record(folder: Path, _options: str) -> None:
        (folder / archive.name).write_text("half")
        raise failure

    monkeypatch.setattr(archive_maker, "_record", record)
    with pytest.raises(type(failure)):
        make_archive(archive)
    assert files(archive) == {"coordinator-0123abcd-new.lock"}


def test_a_jvm_that_wrote_none_is_a_failure(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_maker, "_record", lambda *_: None)
    with pytest.raises(Failure, match="wrote no archive"):
        make_archive(archive)


def test_those_of_an_earlier_java_or_spark_are_deleted(archive: Path, recorded: list[str]) -> None:
    make_archive(archive)
    for name in ("coordinator-0123abcd-old.jsa", "coordinator-elsewhere-x.jsa", "spark-1.jsa"):
        (archive.parent / name).touch()
    forget_others(archive)
    left = {file.name for file in archive.parent.glob("*.jsa")}
    assert left == {archive.name, "coordinator-elsewhere-x.jsa", "spark-1.jsa"}


@pytest.mark.slow
def test_it_ends_with_the_coordinator_beside_which_it_is_made(archive: Path) -> None:
    maker = ArchiveMaker("tests.pipeline.node.slow_maker")
    maker.begin(archive)
    recordings = archive.parent.glob
    wait_until("it begins", lambda: list(recordings("class-archive-*/recording")), WAIT_S)
    maker.stop()
    assert files(archive) == {"coordinator-0123abcd-new.lock"}, "what it had begun is gone"


def test_where_there_is_one_no_process_is_started() -> None:
    maker = ArchiveMaker("no.such.module")
    maker.begin(None)
    maker.stop()
