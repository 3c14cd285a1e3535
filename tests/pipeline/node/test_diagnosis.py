"""A failure is told in one line, and a root that is broken is named first."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.job import one_line
from tests.roots import make_tables

Usage = namedtuple("Usage", "free")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_tables(str(tmp_path / "root"))
    return tmp_path / "root"


def test_a_text_of_many_lines_becomes_one(root: Path) -> None:
    assert one_line(Failure("it\n  broke\n"), str(root)) == "it broke"


def test_of_a_failure_in_java_the_causes_are_told_and_the_stack_is_not() -> None:
    text = (
        "An error occurred while calling o107.exists.\n"
        ": org.apache.hadoop.fs.s3a.AWSBadRequestException: getFileStatus on s3a://b/x\n"
        "\tat org.apache.hadoop.fs.s3a.S3AUtils.translateException(S3AUtils.java:268)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "Caused by: software.amazon.awssdk.services.s3.model.S3Exception: Bad Request\n"
        "\tat software.amazon.awssdk.services.s3.Client.headObject(Client.java:7623)\n"
        "\t... 20 more\n"
    )
    assert one_line(Failure(text), "s3://b/x") == (
        "An error occurred while calling o107.exists. : org.apache.hadoop.fs.s3a."
        "AWSBadRequestException: getFileStatus on s3a://b/x Caused by: "
        "software.amazon.awssdk.services.s3.model.S3Exception: Bad Request"
    )


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
    gone = f"the tables in {root} are missing: it broke"
    assert one_line(Failure("it broke"), str(root)) == gone
    (root / "_checkpoints").mkdir(parents=True)
    assert one_line(Failure("it broke"), str(root)) == gone


def test_nothing_is_said_of_a_root_that_is_not_on_a_local_disk() -> None:
    assert one_line(Failure("it broke"), "s3://bucket/root") == "it broke"
