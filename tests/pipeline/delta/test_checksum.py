"""The version checksum beside a commit says what Spark would otherwise query the log for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.delta.local_appender import LocalAppender
from pipeline.tables.store import ensure_table
from schemas.tables import RESPONSES, to_arrow
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
    appender = LocalAppender(folder)
    for i in range(3):
        appender.append(batch(str(i)))
    log = folder / "_delta_log"
    assert sorted(path.name for path in log.glob("*.crc")) == [f"{2:020}.crc", f"{3:020}.crc"]
    checksum = json.loads((log / f"{3:020}.crc").read_text())
    assert checksum["numFiles"] == 3
    assert checksum["tableSizeBytes"] == sum(f.stat().st_size for f in folder.glob("*.parquet"))
    assert not list(log.glob(".*")), "no temporary file is left"


def test_other_properties_are_read_anew(folder):
    appender = LocalAppender(folder)
    DeltaTable(str(folder)).alter.set_table_properties({"delta.checkpointInterval": "7"})
    appender.append(batch("a"))
    described = json.loads(newest_checksum(folder))["metadata"]["configuration"]
    assert described["delta.checkpointInterval"] == "7"
