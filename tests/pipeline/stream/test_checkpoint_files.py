"""What Spark's files say of a streaming checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.stream.checkpoint_files import delete_checkpoint, last_planned
from pipeline.stream.offset import Planned

pytestmark = pytest.mark.spark


def test_the_last_planned_batch_is_the_one_with_the_greatest_number(spark, tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    assert last_planned(spark, str(checkpoint)) is None
    delete_checkpoint(spark, str(checkpoint))
    (checkpoint / "offsets").mkdir(parents=True)
    assert last_planned(spark, str(checkpoint)) is None
    for batch in (9, 10):
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"batch":{batch}}}')
    assert last_planned(spark, str(checkpoint)) == Planned(10, '{"batch":10}')
    delete_checkpoint(spark, str(checkpoint))
    assert not checkpoint.exists()
