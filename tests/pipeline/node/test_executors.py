"""Before anything starts, a task on an executor of a cluster looks for what the job needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from group_coordinator.pipeline.node.job import NoTask, check_executors

SAID = """An error occurred while calling z:collectAndServe.
: org.apache.spark.SparkException: Job aborted: Error from python worker:
  OSError: AF_UNIX path too long
\tat org.apache.spark.api.python.PythonWorkerFactory.start(PythonWorkerFactory.scala:300)

Driver stacktrace:
Caused by: org.apache.spark.SparkException: Error from python worker:
  OSError: AF_UNIX path too long
"""


class FailingTask:
    """An RDD whose task fails on the executor."""

    def map(self, _function: Any) -> FailingTask:
        return self

    def collect(self) -> list[Any]:
        raise Py4JError(SAID)


def session(master: str) -> Any:
    context = SimpleNamespace(parallelize=lambda *_: FailingTask())
    return SimpleNamespace(conf={"spark.master": master}, sparkContext=context)


def test_why_no_task_runs_is_told_once_and_without_java_s_stack():
    with pytest.raises(NoTask) as told:
        check_executors(session("yarn"))
    assert str(told.value) == (
        "no task runs on an executor: An error occurred while calling z:collectAndServe. : "
        "org.apache.spark.SparkException: Job aborted: Error from python worker: "
        "OSError: AF_UNIX path too long"
    )


def test_where_the_driver_decides_there_is_nobody_to_ask():
    check_executors(session("local[2]"))
