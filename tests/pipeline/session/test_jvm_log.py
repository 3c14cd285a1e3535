"""Of what the JVM writes, what somebody may have to act on is told, in one line; a file has all."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.session.jvm_log import (
    JvmLog,
    JvmLogRecord,
    LineAssembler,
    downloaded_jar,
    failure_cause,
    needs_action,
    terminal_line,
)

WAIT_S = 10.0

IDLE_WORKER = """\
Traceback (most recent call last):
  File "/venv/lib/pyspark.zip/pyspark/daemon.py", line 262, in manager
  File "/venv/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe"""

CHAINED = """\
Traceback (most recent call last):
  File "/home/me/mine.py", line 3, in f
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/me/mine.py", line 5, in f
ValueError: no a"""

QUERY_FAILED = """\
23:14:47 ERROR MicroBatchExecution: Query group-coordinator [id = 1] terminated with error
org.apache.spark.SparkException: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
Traceback (most recent call last):
  File "/x/pipeline/stream/sink.py", line 3, in __call__
OSError: [Errno 28] No space left on device

	at org.apache.spark.sql.Query.f(Query.scala:60)
Caused by: java.lang.StackOverflowError
	at java.util.regex.Pattern.match(Pattern.java:1)"""

DISK = """\
23:14:40 ERROR DiskBlockObjectWriter: Exception occurred while reverting partial writes
java.io.IOException: No space left on device
	at java.io.FileOutputStream.writeBytes(Native Method)"""


def said(text: str) -> list[JvmLogRecord]:
    gatherer = LineAssembler()
    found = [gatherer.feed(line) for line in text.splitlines()]
    return [each for each in (*found, gatherer.end()) if each is not None]


def told(text: str) -> list[str]:
    return [terminal_line(each) for each in said(text) if needs_action(each)]


def test_a_stack_trace_belongs_to_its_record() -> None:
    first, second = said(f"{QUERY_FAILED}\n{DISK}")
    assert (first.level, first.logger) == (logging.ERROR, "MicroBatchExecution")
    assert first.below[-1] == "\tat java.util.regex.Pattern.match(Pattern.java:1)"
    assert (second.logger, len(second.below)) == ("DiskBlockObjectWriter", 2)


def test_an_error_is_told_in_one_line() -> None:
    assert told(DISK) == ["Exception occurred while reverting partial writes"]


def test_the_end_of_the_query_is_told_by_who_ends_with_it() -> None:
    assert told(QUERY_FAILED) == []


def test_both_patterns_of_spark_s_log_are_known() -> None:
    assert told("26/11/22 23:14:40 WARN TaskSchedulerImpl: Lost executor 1") == ["Lost executor 1"]


def test_a_name_with_blanks_is_one() -> None:
    (found,) = said("23:14:40 INFO RocksDB StoreId[ a=b, c=d ]: Committed 1, stats = {}")
    assert (found.level, found.logger) == (logging.INFO, "RocksDB")
    assert found.head == "Committed 1, stats = {}"


def test_what_is_no_warning_is_not_told() -> None:
    assert told("23:14:40 INFO SparkContext: Running Spark version 4.2.0") == []


def test_workers_that_spark_let_go_are_not_told() -> None:
    assert len(said(f"{IDLE_WORKER}\n{IDLE_WORKER}")) == 2
    assert told(f"{IDLE_WORKER}\n{IDLE_WORKER}") == []
    assert told("WARNING: Using incubator modules: jdk.incubator.vector") == []


def test_an_idle_worker_s_traceback_hides_no_warning_before_it() -> None:
    warning = "23:14:40 WARN TaskSchedulerImpl: Lost executor 1"
    assert told(f"{warning}\n{IDLE_WORKER}\n{warning}") == ["Lost executor 1"] * 2


def test_any_other_traceback_is_told_by_its_last_line() -> None:
    (chained,) = said(CHAINED)
    assert needs_action(chained)
    assert terminal_line(chained) == "ValueError: no a"
    assert told(IDLE_WORKER.replace("/pyspark/", "/mine/")) == [
        "BrokenPipeError: [Errno 32] Broken pipe"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "requests: part-0.parquet is no Parquet file: torn",
        "java.lang.OutOfMemoryError: Java heap space",
        "# A fatal error has been detected by the Java Runtime Environment:",
        "Fatal Python error: Segmentation fault",
    ],
)
def test_what_a_process_prints_and_nobody_knows_is_told(line: str) -> None:
    assert told(line) == [line]


def test_a_start_says_which_jars_are_fetched_and_why_it_failed() -> None:
    lines = """\
:: resolving dependencies :: org.apache.spark#spark-submit-parent;1.0
	confs: [default]
downloading https://example.org/io/delta/delta-spark_4.2_2.13-4.4.0.jar ...
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]
	at org.apache.spark.util.MavenUtils$.resolve(MavenUtils.scala:530)"""
    found = said(lines)
    assert [downloaded_jar(each) for each in found if downloaded_jar(each)] == [
        "delta-spark_4.2_2.13-4.4.0.jar"
    ]
    assert [failure_cause(each) for each in found if failure_cause(each)] == [
        "[unresolved dependency: a#b;1: not found]"
    ]


# --- the pipe -----------------------------------------------------------------------------------


class Heard(logging.Handler):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    handler, root = Heard(), logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler.records
    root.removeHandler(handler)
    root.setLevel(level)


def lines(records: list[logging.LogRecord], file_only: bool) -> list[str]:
    return [each.getMessage() for each in records if getattr(each, "file_only", False) is file_only]


def test_before_spark_runs_only_its_jars_are_told(heard: list[logging.LogRecord]) -> None:
    jvm_log = JvmLog()
    pipe = jvm_log.pipe()
    os.write(pipe, b":: loading settings\ndownloading https://r/o/a-1.jar ...\nError: no master")
    os.close(pipe)
    jvm_log.await_end(WAIT_S)
    assert lines(heard, file_only=False) == ["downloading a-1.jar"]
    assert ":: loading settings" in lines(heard, file_only=True), "the file has it"
    assert jvm_log.cause == "Error: no master"


def test_while_spark_runs_errors_are_told_with_their_trace_for_the_file(
    heard: list[logging.LogRecord],
) -> None:
    jvm_log = JvmLog()
    jvm_log.started()
    pipe = jvm_log.pipe()
    os.write(pipe, f"{DISK}\n{QUERY_FAILED}\n".encode())
    os.close(pipe)
    jvm_log.await_end(WAIT_S)
    error, query = heard
    assert (error.name, error.levelname) == ("spark.DiskBlockObjectWriter", "ERROR")
    assert "No space left on device" in vars(error)["detail"]
    assert (vars(error)["file_only"], vars(query)["file_only"]) == (False, True)


def test_once_it_ends_nothing_more_is_told(heard: list[logging.LogRecord]) -> None:
    jvm_log = JvmLog()
    jvm_log.started()
    jvm_log.ending()
    pipe = jvm_log.pipe()
    os.write(pipe, f"Exception in thread x\n{DISK}\n".encode())
    os.close(pipe)
    jvm_log.await_end(WAIT_S)
    assert lines(heard, file_only=False) == []
    assert len(lines(heard, file_only=True)) == 2


def test_a_jvm_that_runs_writes_to_a_named_pipe(heard: list[logging.LogRecord]) -> None:
    jvm_log = JvmLog()
    jvm_log.started()
    with Path(jvm_log.named_pipe()).open("wb") as writer:
        writer.write(f"{DISK}\n".encode())
    # The pipe has no end, so that a record is not kept back shows that it waits for none.
    for _ in range(200):
        if heard:
            break
        jvm_log.await_end(0.05)
    assert lines(heard, file_only=False) == ["Exception occurred while reverting partial writes"]
