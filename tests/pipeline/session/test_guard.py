"""What Spark does not publish stands in one package, and a coordinator starts without it."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from group_coordinator import pipeline
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node import job, needed
from group_coordinator.pipeline.session import fork_server, spark_settings, start, submitted
from group_coordinator.pipeline.session.driver_jvm import StartedJvm
from group_coordinator.pipeline.session.guard import say_if_unknown, unless_missing
from group_coordinator.pipeline.session.jars import PACKAGES
from group_coordinator.pipeline.session.jvm_log import JvmLog
from group_coordinator.pipeline.session.scratch import ScratchFolder
from group_coordinator.pipeline.session.spark_settings import packages
from group_coordinator.pipeline.session.start import SessionStart, SparkNotStarted
from group_coordinator.pipeline.settings import Settings
from tests.ends import check_end

_PRIVATE = re.compile(
    r"\._(jvm|jsc|jdf|jsparkSession|jconf|gateway)\b"
    r"|\bpyspark\.(serializers|worker|sql\.pandas|daemon|java_gateway|find_spark_home)\b"
    r"|\bpyspark(\.| import )(accumulators|cloudpickle)\b"
    r"|execution\.streaming\.checkpointing"
)
PACKAGE = Path(start.__file__).parent


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_no_other_package_reaches_for_it():
    modules = Path(pipeline.__file__).parent.rglob("*.py")
    found = {path.parent for path in modules if _PRIVATE.search(path.read_text("utf-8"))}
    assert found == {PACKAGE}


def test_each_guard_and_each_test_that_the_list_names_is_there():
    listed = (PACKAGE / "PRIVATE.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", listed))
    there = "".join(
        path.read_text("utf-8") for path in Path(__file__).parents[2].rglob("test_*.py")
    )
    assert named == {each for each in named if f"def {each}(" in there}
    costs = {cost for path in (PACKAGE, PACKAGE.parent / "node") for cost in _costs(path)}
    assert costs == {cost for cost in costs if cost in listed}


def _costs(package: Path) -> list[str]:
    text = "".join(path.read_text("utf-8") for path in package.glob("*.py"))
    return re.findall(r'unless_missing\("([^"]+)"\)', text)


@pytest.mark.parametrize(
    "missing",
    [AttributeError("_jvm"), ImportError("gone"), TypeError("4 arguments"), Py4JError("x")],
)
def test_what_is_missing_is_left_out_and_said_in_one_line(missing: Exception, caplog):
    with unless_missing("batches take longer"):
        raise missing
    (line,) = lines(caplog)
    assert line.startswith(
        f"batches take longer: Spark {pyspark.__version__} lacks a private API ("
    )


def test_what_else_fails_is_no_matter_of_a_release():
    with pytest.raises(Failure), unless_missing("batches take longer"):
        raise Failure("the disk is full")


def test_a_release_that_was_tried_is_not_spoken_of(monkeypatch, caplog):
    say_if_unknown()
    assert lines(caplog) == []
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    say_if_unknown()
    (line,) = lines(caplog)
    assert line.startswith("Spark 4.4.0 was not tested with this release, only 4.2 and 4.3:")


class BareSpark:
    """A session of a Spark that publishes all that it has."""

    version = "4.9.0"

    def __init__(self) -> None:
        self.sparkContext = self.conf = self
        self.settings: dict[str, str] = {}
        self.given: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.master = "local[2]"

    def config(self, key: str, value: str) -> BareSpark:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> BareSpark:
        return self

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def isModifiable(self, key: str) -> bool:
        return key.startswith("spark.sql.")

    def getConf(self) -> BareSpark:
        return self

    def contains(self, key: str) -> bool:
        return key in self.given


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> BareSpark:
    """What SparkSession.builder makes, in a process that has no session."""
    made = BareSpark()
    monkeypatch.setattr(SparkSession, "builder", made)
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(start, "_prepare", lambda *_args: None)
    monkeypatch.setattr(start, "with_known_jars", lambda wanted: wanted)
    monkeypatch.setattr(start, "start_with_jars", lambda wanted, begin: begin(wanted))
    monkeypatch.setattr(start, "runs_jvm", lambda: False)
    return made


# What a session is begun without, once it is there.
LATER = [
    "missing jars are not detected",
    "batches take 40 ms longer than necessary",
    "the class that writes the streaming checkpoint is not checked",
    "batches take 5 ms longer than necessary",
]


def begin(folder: Path) -> Any:
    return SessionStart(Settings(), str(folder), jvm_log=JvmLog(), delta=True).finish()


def test_a_session_begins_without_all_of_it(bare: BareSpark, monkeypatch, tmp_path, caplog):
    def gone(*_args: object) -> None:
        raise ImportError("no module named pyspark.find_spark_home")

    monkeypatch.setattr(start, "start_jvm", gone)
    assert begin(tmp_path) is bare
    assert bare.settings["spark.sql.codegen.wholeStage"] == "false", "it has our settings"
    said = [line.partition(":")[0] for line in lines(caplog)]
    assert said == ["Spark starts later, and the JVM's output goes to the terminal", *LATER]


def test_a_jvm_that_cannot_be_reached_is_ended(bare: BareSpark, monkeypatch, tmp_path, caplog):
    with subprocess.Popen(["sleep", "60"]) as process:
        begun = StartedJvm(process, ScratchFolder())
        monkeypatch.setattr(start, "start_jvm", lambda *_args: begun)

        def changed(*_args: object) -> None:
            raise TypeError("_ensure_initialized() got an unexpected keyword argument 'gateway'")

        monkeypatch.setattr(start, "connect_jvm", changed)
        assert begin(tmp_path) is bare
        check_end(process.wait(10), expected=-signal.SIGTERM)
    said = [line.partition(":")[0] for line in lines(caplog)]
    assert said == ["Spark starts a second JVM, which writes to the terminal", *LATER]


def test_of_another_release_nothing_is_begun_beside(bare: BareSpark, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    monkeypatch.setattr(start, "start_jvm", None)
    assert begin(tmp_path) is bare
    assert lines(caplog)[0].startswith("Spark 4.9.0 was not tested with this release")
    monkeypatch.setattr(fork_server, "begin", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    start._prepare_workers({}, "local[2]", ())
    assert start.os.environ["PYSPARK_PYTHON"] == sys.executable


UNRESOLVED = "Spark did not start: [unresolved dependency: {}: not found]"


@pytest.mark.parametrize("theirs", [(), ("org.other:package:1.0",)])
def test_files_that_spare_forks_and_cannot_be_fetched_are_done_without(
    bare: BareSpark, theirs: tuple[str, ...], monkeypatch, tmp_path, caplog
):
    asked = []

    def offline(wanted: dict[str, str], _begin: object) -> BareSpark:
        asked.append(wanted.get(PACKAGES))
        if "hadoop-bare" in wanted.get(PACKAGES, ""):
            name = "com.globalmentor#hadoop-bare-naked-local-fs;0.1.0"
            raise SparkNotStarted(UNRESOLVED.format(name))
        return bare

    monkeypatch.setattr(start, "start_with_jars", offline)
    monkeypatch.setattr(start, "with_known_jars", lambda _wanted: None)
    wanted = Settings(spark={PACKAGES: ",".join(theirs)})
    caplog.set_level(logging.INFO)
    assert SessionStart(wanted, str(tmp_path), jvm_log=JvmLog()).finish() is bare
    assert asked == [",".join([packages(), *theirs]), ",".join(theirs) or None]
    line = caplog.records[0].getMessage()
    assert line.startswith("Spark did not start: [unresolved dependency: com.globalmentor#")
    assert line.endswith(f"Spark starts without {packages()}")


def test_what_a_user_asked_for_and_cannot_be_fetched_ends_the_start(
    bare: BareSpark, monkeypatch, tmp_path
):
    def offline(*_args: object) -> None:
        raise SparkNotStarted(UNRESOLVED.format("org.other#package;1.0"))

    monkeypatch.setattr(start, "start_with_jars", offline)
    monkeypatch.setattr(start, "with_known_jars", lambda _wanted: None)
    wanted = Settings(spark={PACKAGES: "org.other:package:1.0"})
    with pytest.raises(SparkNotStarted, match="package;1"):
        SessionStart(wanted, str(tmp_path), jvm_log=JvmLog()).finish()


def test_a_spark_submit_that_hides_its_jvm_gets_what_can_be_set_later(
    bare: BareSpark, monkeypatch, tmp_path, caplog
):
    def gone() -> None:
        raise ImportError("no module named pyspark.java_gateway")

    monkeypatch.setattr(start, "launch_jvm", gone)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    bare.given = {"spark.sql.session.timeZone": "theirs"}
    assert begin(tmp_path) is bare
    assert bare.settings["spark.sql.codegen.wholeStage"] == "false"
    assert "spark.sql.session.timeZone" not in bare.settings, "the user's settings win"
    assert "spark.ui.enabled" not in bare.settings, "it cannot be set any more"
    assert str(PACKAGE.parents[2]) in bare.environment["PYTHONPATH"]
    said = [line.partition(":")[0] for line in lines(caplog)]
    assert said[0] == "settings that Spark reads at its start are those of spark-submit"


def test_a_submitted_jvm_that_cannot_be_told_how_to_log_goes_on(
    bare: BareSpark, monkeypatch, tmp_path, caplog
):
    def gone(*_args: object) -> None:
        raise AttributeError("type object 'SparkContext' has no attribute '_jvm'")

    monkeypatch.setattr(start, "launch_jvm", lambda: None)
    monkeypatch.setattr(start, "runs_jvm", lambda: True)
    monkeypatch.setattr(start, "SparkConf", lambda: bare)
    monkeypatch.setattr(submitted, "SparkConf", lambda: bare)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(submitted, "stderr_to", gone)
    assert begin(tmp_path) is bare
    monkeypatch.setattr(submitted, "stderr_to", lambda _pipe: None)
    monkeypatch.setattr(submitted, "logs_by_default", lambda: True)
    monkeypatch.setattr(submitted, "log_as", gone)
    assert begin(tmp_path) is bare
    said = [line.partition(":")[0] for line in lines(caplog)]
    assert [each for each in said if each not in LATER] == [
        "the JVM's output goes to the terminal",
        "Spark logs with its default profile",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")
def test_where_no_script_can_be_started_each_process_imports_for_itself(monkeypatch, caplog):
    monkeypatch.setattr(fork_server.os, "access", lambda *_args: False)
    monkeypatch.setattr(fork_server, "begin", fork_server.begin.__wrapped__)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    start._prepare_workers({}, "local[2]", ())
    assert start.os.environ["PYSPARK_PYTHON"] == sys.executable
    (line,) = lines(caplog)
    assert line.startswith(
        "each Python process of Spark imports its modules itself, 6 s of CPU time:"
    )


def test_executors_are_not_looked_at_without_cloudpickle(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pyspark.cloudpickle", None)
    spark = BareSpark()
    spark.settings["spark.master"] = "spark://host:7077"
    job.check_executors(spark)  # type: ignore[arg-type]
    (line,) = lines(caplog)
    assert line.startswith("missing packages of executors are not detected:")
    assert needed.missing_modules() is None


@pytest.mark.spark
def test_a_class_that_spark_has_no_more_is_not_asked_for(spark, caplog):
    before = spark.conf.get(spark_settings.FILE_MANAGER)
    try:
        spark_settings.keep_file_manager(spark)
        assert (spark.conf.get(spark_settings.FILE_MANAGER), lines(caplog)) == (before, [])
        spark.conf.set(spark_settings.FILE_MANAGER, "org.apache.spark.gone.Manager")
        spark_settings.keep_file_manager(spark)
        assert spark.conf.get(spark_settings.FILE_MANAGER, None) is None
        (line,) = lines(caplog)
        assert line.endswith("this Spark has no org.apache.spark.gone.Manager")
    finally:
        spark.conf.set(spark_settings.FILE_MANAGER, before)
