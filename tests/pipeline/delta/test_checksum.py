"""The version checksum beside a commit says what Spark would otherwise query the log for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.pipeline.delta.feature_tables import create, protocol
from tests.pipeline.rows import response


@pytest.fixture
def folder(tmp_path) -> Path:
    ensure_table(str(tmp_path), RESPONSES)
    return tmp_path / "responses"


def batch(*ids: str) -> pa.Table:
    return to_arrow(RESPONSES, [response(each) for each in ids])


def newest_checksum(folder: Path) -> str:
    return max((folder / "_delta_log").glob("*.crc")).read_text()


def test_a_checksum_says_how_many_files_and_bytes(folder):
    appender = Appender(folder)
    for i in range(3):
        appender.append(batch(str(i)))
    log = folder / "_delta_log"
    assert sorted(path.name for path in log.glob("*.crc")) == [f"{2:020}.crc", f"{3:020}.crc"]
    checksum = json.loads((log / f"{3:020}.crc").read_text())
    assert checksum["numFiles"] == 3
    assert checksum["tableSizeBytes"] == sum(f.stat().st_size for f in folder.glob("*.parquet"))
    assert not list(log.glob(".*")), "no temporary file is left"


def test_other_properties_are_read_anew(folder):
    appender = Appender(folder)
    DeltaTable(str(folder)).alter.set_table_properties({"delta.checkpointInterval": "7"})
    appender.append(batch("a"))
    described = json.loads(newest_checksum(folder))["metadata"]["configuration"]
    assert described["delta.checkpointInterval"] == "7"


# Unlike what delta-rs would write: blanks, an order of its own, and fields that it does not know.
SCHEMA = (
    '{"fields": [{"metadata": {"comment": "a number"}, "name": "n", "nullable": true, '
    '"type": "long"}], "type": "struct"}'
)


@pytest.mark.parametrize("from_checkpoint", [False, True], ids=["commits", "checkpoint"])
def test_the_description_is_the_log_s_word_for_word(tmp_path, from_checkpoint):
    """Spark compares the two texts, and fails with DELTA_STATE_RECOVER_ERROR if they differ."""
    table = create(
        tmp_path,
        protocol(1, 2),
        {"delta.checkpointInterval": "7", "owner": "me"},
        schemaString=SCHEMA,
        name="orders",
        description="what was ordered",
    )
    log = table / "_delta_log"
    first = (log / f"{0:020}.json").read_text().splitlines()
    told = {key: value for line in first for key, value in json.loads(line).items()}
    numbers = pa.table({"n": pa.array([1], pa.int64())})
    if from_checkpoint:
        Appender(table).append(numbers)
        DeltaTable(str(table)).create_checkpoint()
        (log / f"{0:020}.json").unlink()
        (log / f"{1:020}.json").unlink()
    Appender(table).append(numbers)
    checksum = json.loads(newest_checksum(table))
    assert checksum["metadata"] == told["metaData"]
    assert checksum["protocol"] == told["protocol"]


def test_a_comment_that_comes_while_the_table_is_open_is_in_the_next_checksum(folder):
    appender = Appender(folder)
    DeltaTable(str(folder)).alter.set_table_description("answers")
    appender.append(batch("a"))
    assert json.loads(newest_checksum(folder))["metadata"]["description"] == "answers"
