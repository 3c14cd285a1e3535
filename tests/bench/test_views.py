"""Tests of the benchmark of the views: queries count every record, and different results fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.bench import views
from tests.bench.compaction import make_log

pytestmark = pytest.mark.full

RECORDS = 2_000


def test_duckdb_counts_every_record_of_the_history(tmp_path: Path) -> None:
    root = str(tmp_path)
    ensure_tables(root)
    make_log(root, RECORDS, 1_000)
    # A separate process, because this one may have had a JVM for another test.
    command = [sys.executable, "-m", "tests.bench.views", "duckdb", root]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found = msgspec.json.decode(said, type=views.Answers)
    (offsets, _), (of_one, total) = found.answers
    assert 0 < offsets <= 1_000
    assert 0 < of_one < RECORDS
    assert 0 <= total < RECORDS * of_one
    assert (found.jvm, found.peak > 0) == (0, True)


@pytest.mark.parametrize("differs", [False, True])
def test_engines_that_answer_otherwise_fail(monkeypatch: pytest.MonkeyPatch, differs: bool) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        engine = command[-2]
        answers = [[1, 2, 3], [4 + (differs and engine == "spark")]]
        said = msgspec.json.encode(views.Answers(engine, 2.0, 1.0, 5, 6, answers))
        return subprocess.CompletedProcess(command, 0, b"progress\n" + said + b"\n")

    monkeypatch.setattr(views, "subprocess", type("S", (), {"run": run, "PIPE": -1}))
    if differs:
        with pytest.raises(Failure, match="the engines differ"):
            views.bench_views(RECORDS, lambda _: None)
        return
    report = views.bench_views(RECORDS, lambda _: None)
    ratios = {"all groups, s": 1.0, "one group, s": 1.0}
    assert report.ratios() == {"spark / duckdb": ratios, "cluster / duckdb": ratios}
    assert [engine.engine for engine in report.rows()] == ["duckdb", "spark", "cluster"]
