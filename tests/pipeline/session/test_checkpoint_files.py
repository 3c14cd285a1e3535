"""What Spark's files say of a streaming checkpoint, on a disk and where Hadoop reaches."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from group_coordinator.pipeline.session import checkpoint_files
from group_coordinator.pipeline.session.checkpoint_files import (
    delete_checkpoint,
    last_planned,
    move,
    query_id,
    read_text_file,
    write_text_file,
)


@pytest.fixture
def on_disk() -> None:
    """The session of a Spark that hides its JVM."""
    return


@pytest.fixture
def in_hadoop(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session by which Hadoop reaches the files, as it does those of a store."""
    monkeypatch.setattr(checkpoint_files, "_files", checkpoint_files._InHadoop)
    return spark


@pytest.fixture(params=["on_disk", pytest.param("in_hadoop", marks=pytest.mark.spark)])
def session(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_the_last_planned_batch_is_the_one_with_the_greatest_number(session, tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    assert last_planned(session, str(checkpoint)) is None
    delete_checkpoint(session, str(checkpoint))
    (checkpoint / "offsets").mkdir(parents=True)
    assert last_planned(session, str(checkpoint)) is None
    for batch in (9, 10):
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"batch":{batch}}}')
    (checkpoint / "offsets" / ".11.crc").write_text("")
    assert last_planned(session, str(checkpoint)) == (10, '{"batch":10}')
    delete_checkpoint(session, str(checkpoint))
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("text", "found"), [('{"id":"1f67645a"}', "1f67645a"), ('{"id"', None), (None, None)]
)
def test_the_id_of_the_query_is_read(session, tmp_path: Path, text: str | None, found: str | None):
    """Torn or gone it is unknown."""
    if text is not None:
        (tmp_path / "metadata").write_text(text)
    assert query_id(session, str(tmp_path)) == found


def test_a_text_of_ours_is_kept_with_the_streaming_checkpoint(session, tmp_path: Path, caplog):
    checkpoint = tmp_path / "checkpoint"
    assert read_text_file(session, str(checkpoint), "text") is None
    with caplog.at_level(logging.DEBUG, checkpoint_files.log.name):
        write_text_file(session, str(checkpoint), "text", "lost")
    assert "text is not kept in" in caplog.text, "a later start has taken the folder"
    assert not checkpoint.exists()
    checkpoint.mkdir()
    for text in ("first", "zweiter ü"):
        write_text_file(session, str(checkpoint), "text", text)
    assert read_text_file(session, str(checkpoint), "text") == "zweiter ü"
    assert last_planned(session, str(checkpoint)) is None
    delete_checkpoint(session, str(checkpoint))
    assert not checkpoint.exists()


def test_a_folder_is_moved_with_its_streaming_checkpoint(session, tmp_path: Path):
    source, target = tmp_path / "epoch-3", tmp_path / "epoch-8"
    assert not move(session, str(source), str(target)), "it is not there"
    (source / "stream" / "offsets").mkdir(parents=True)
    (source / "stream" / "offsets" / "0").write_text('v1\n{}\n{"batch":0}')
    (target / "what a killed start left").mkdir(parents=True)
    assert move(session, str(source), str(target))
    assert not source.exists()
    assert [each.name for each in target.iterdir()] == ["stream"]
    assert last_planned(session, f"{target}/stream") == (0, '{"batch":0}')
    delete_checkpoint(session, str(target))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_renamed_stays_where_it_is(tmp_path: Path, monkeypatch):
    def other_disk(*_args: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", other_disk)
    (tmp_path / "epoch-3").mkdir()
    assert not move(None, str(tmp_path / "epoch-3"), str(tmp_path / "epoch-8"))  # type: ignore[arg-type]
    assert (tmp_path / "epoch-3").is_dir()


def test_a_uri_is_the_folder_that_hadoop_takes_it_for(tmp_path: Path):
    (tmp_path / "a%20b" / "offsets").mkdir(parents=True)
    (tmp_path / "a%20b" / "offsets" / "0").write_text('v1\n{}\n{"batch":0}')
    assert last_planned(None, f"file://{tmp_path}/a%20b") == (0, '{"batch":0}')  # type: ignore[arg-type]
