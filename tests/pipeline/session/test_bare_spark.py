"""A coordinator on a Spark of an unknown release, which hides all that Spark does not publish."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from group_coordinator.pipeline.tables.request_log import RequestLog
from tests.ends import check_end
from tests.pipeline.rows import heartbeat, rows
from tests.support.process import KillableCoordinator
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

# In each Python process, before anything else of it runs.
HIDES = """
import pyspark
pyspark.__version__ = "9.0.0"
import group_coordinator.pipeline.session.driver_jvm as driver_jvm
def hidden(*_arguments):
    raise AttributeError("it is hidden")
driver_jvm.jvm = driver_jvm.end_quietly = hidden
"""
WAIT_S = 120.0


def await_answer(root: str, request_id: str) -> int:
    def found() -> list[int]:
        answers = rows(root, "responses")
        return [row["error_code"] for row in answers if row["request_id"] == request_id]

    return wait_until(f"{request_id} is answered", found, WAIT_S)[0]


def test_a_coordinator_runs_on_a_spark_that_has_none_of_it(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    here = str(Path(__file__).parents[3] / ".src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), here]))
    requests = RequestLog(root)
    for turn in ("first", "second"):
        process = KillableCoordinator(root, None, tmp_path / f"{turn}.log")
        try:
            process.await_ready()
            requests.append([heartbeat(turn, "g")])
            assert await_answer(root, turn) == 25, "the member is unknown"
            check_end(process.stop(), process.log_path)
        finally:
            process.kill()
        said = (tmp_path / f"{turn}.log").read_text()
        for cost in (
            "Spark 9.0.0 was not tested with this release",
            "the end of the JVM prints a traceback: Spark 9.0.0 lacks a private API",
            "batches take 40 ms longer than necessary: Spark 9.0.0 lacks a private API",
            "a SIGTERM to the JVM interrupts a batch",
            "groups are passed through pandas",
        ):
            assert said.count(cost) == 1, said
        assert "Traceback" not in said.partition("ready")[0]
