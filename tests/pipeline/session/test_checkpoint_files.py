"""What Spark's files say of a streaming checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.session.checkpoint_files import delete_checkpoint, last_planned, move

pytestmark = pytest.mark.spark


def test_the_last_planned_batch_is_the_one_with_the_greatest_number(spark, tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    assert last_planned(spark, str(checkpoint)) is None
    delete_checkpoint(spark, str(checkpoint))
    (checkpoint / "offsets").mkdir(parents=True)
    assert last_planned(spark, str(checkpoint)) is None
    for batch in (9, 10):
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"batch":{batch}}}')
    assert last_planned(spark, str(checkpoint)) == (10, '{"batch":10}')
    delete_checkpoint(spark, str(checkpoint))
    assert not checkpoint.exists()


def test_a_folder_is_moved_with_its_streaming_checkpoint(spark, tmp_path: Path):
    source, target = tmp_path / "epoch-3", tmp_path / "epoch-8"
    assert not move(spark, str(source), str(target)), "it is not there"
    (source / "stream" / "offsets").mkdir(parents=True)
    (source / "stream" / "offsets" / "0").write_text('v1\n{}\n{"batch":0}')
    (target / "what a killed start left").mkdir(parents=True)
    assert move(spark, str(source), str(target))
    assert not source.exists()
    assert [each.name for each in target.iterdir()] == ["stream"]
    assert last_planned(spark, f"{target}/stream") == (0, '{"batch":0}')
    delete_checkpoint(spark, str(target))
    assert list(tmp_path.iterdir()) == []
