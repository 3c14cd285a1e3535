"""A failure is told in one line, and a root that is broken is named first."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from pipeline.errors import Failure
from pipeline.node.diagnosis import one_line
from tests.roots import make_tables

Usage = namedtuple("Usage", "free")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tables(str(tmp_path / "root"))
    return tmp_path / "root"


def test_a_text_of_many_lines_becomes_one(root: Path) -> None:
    assert one_line(Failure("it\n  broke\n"), str(root)) == "it broke"


def test_a_full_disk_is_named_by_the_error_or_by_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = f"the disk of {root} is full: "
    text = "IOException: No space left on device"
    assert one_line(Failure(text), str(root)) == full + text
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1))
    assert one_line(Failure("it broke"), root.as_uri()) == full + "it broke"


def test_a_root_that_is_gone_is_named_also_if_a_checkpoint_made_its_folder_anew(root: Path) -> None:
    shutil.rmtree(root)
    gone = f"the tables under {root} are gone: it broke"
    assert one_line(Failure("it broke"), str(root)) == gone
    (root / "_checkpoints").mkdir(parents=True)
    assert one_line(Failure("it broke"), str(root)) == gone


def test_nothing_is_said_of_a_root_that_is_not_on_a_local_disk() -> None:
    assert one_line(Failure("it broke"), "s3://bucket/root") == "it broke"
