"""The archive of Spark's classes is made once, by one process, and is whole or not there."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.archive_maker import ArchiveMaker, forget_others, make_archive
from tests.waiting import wait_until

WAIT_S = 30.0


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "coordinator-0123abcd-new.jsa"


class Recording:
    """Takes the place of JVMs, each of which writes its archive; `ran` has their options."""

    def __init__(
        self, writes: str | None = "classes", failure: BaseException | None = None
    ) -> None:
        self.ran: list[str] = []
        self._writes, self._failure = writes, failure

    def __call__(self, _folder: Path, options: str) -> None:
        self.ran.append(options)
        if self._writes is not None:
            Path(options.rpartition("-XX:ArchiveClassesAtExit=")[2]).write_text(self._writes)
        if self._failure is not None:
            raise self._failure


@pytest.fixture
def recording() -> Recording:
    return Recording()


def files(archive: Path) -> set[str]:
    return {file.name for file in archive.parent.iterdir()}


def test_it_is_made_once(archive: Path, recording: Recording) -> None:
    assert make_archive(archive, "-Xint", recording)
    assert archive.read_text() == "classes"
    assert recording.ran[0].startswith("-Xint ")
    assert not make_archive(archive, record=recording)
    assert len(recording.ran) == 1
    assert files(archive) == {archive.name, "coordinator-0123abcd-new.lock"}


def test_of_two_that_start_at_once_one_makes_it(archive: Path, recording: Recording) -> None:
    archive.parent.mkdir()
    with archive.with_suffix(".lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make_archive(archive, record=recording)
    assert not recording.ran
    assert make_archive(archive, record=recording), "the other one was ended before it was done"


@pytest.mark.parametrize("failure", [Failure("the coordinator ended"), KeyboardInterrupt()])
def test_one_that_was_cut_off_is_none(archive: Path, failure: BaseException) -> None:
    with pytest.raises(type(failure)):
        make_archive(archive, record=Recording("half", failure))
    assert files(archive) == {"coordinator-0123abcd-new.lock"}


def test_a_jvm_that_wrote_none_is_a_failure(archive: Path) -> None:
    with pytest.raises(Failure, match="the JVM did not write the archive of its classes: "):
        make_archive(archive, record=Recording(writes=None))


def test_those_of_an_earlier_java_or_spark_are_deleted(archive: Path) -> None:
    archive.parent.mkdir()
    for name in ("coordinator-0123abcd-old.jsa", "coordinator-elsewhere-x.jsa", "spark-1.jsa"):
        (archive.parent / name).touch()
    archive.touch()
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


def test_where_there_is_one_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "marker.py").write_text("import sys; open(__file__ + sys.argv[1], 'w').close()")
    for archive, started in ((None, []), (Path("made"), ["marker.pymade"])):
        maker = ArchiveMaker("marker")
        maker.begin(archive)
        maker.stop()
        assert [file.name for file in tmp_path.glob("marker.py?*")] == started
