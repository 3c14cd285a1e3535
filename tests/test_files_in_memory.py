"""The tests' files are in memory, unless the user wants them elsewhere or memory is short."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests import files_in_memory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the machine's, by a process that has chosen none."""
    monkeypatch.setattr(files_in_memory, "_MEMORY", tmp_path)
    monkeypatch.setattr(files_in_memory, "_LEAST_FREE_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setenv("TMPDIR", "put back afterwards")
    monkeypatch.delenv("TMPDIR")
    return tmp_path


def test_temporary_files_are_in_memory_until_the_end(memory: Path) -> None:
    folder = files_in_memory.begin()
    assert folder is not None
    assert Path(tempfile.mkdtemp()).parent == folder
    files_in_memory.end(folder)
    assert list(memory.iterdir()) == []


def test_what_a_run_that_was_killed_left_behind_is_removed(memory: Path) -> None:
    left = memory / "group-coordinator-tests-0"
    (left / "files").mkdir(parents=True)
    other = memory / "somebody-else's"
    other.mkdir()
    folder = files_in_memory.begin()
    assert sorted(memory.iterdir()) == sorted([folder, other])


def test_whoever_chooses_a_place_has_it(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(memory))
    assert files_in_memory.begin() is None
    assert os.environ["TMPDIR"] == str(memory)


def test_where_memory_is_short_files_are_on_the_disk(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_much = shutil.disk_usage(memory).free + (1 << 40)
    monkeypatch.setattr(files_in_memory, "_LEAST_FREE_BYTES", too_much)
    assert files_in_memory.begin() is None
    assert list(memory.iterdir()) == []


def test_where_there_is_no_such_folder_files_are_on_the_disk(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_in_memory, "_MEMORY", memory / "none")
    assert files_in_memory.begin() is None
