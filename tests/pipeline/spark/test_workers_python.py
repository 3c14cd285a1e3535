"""What sessions and their workers need for the views, and what they do without."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from group_coordinator.pipeline.spark import register_views, views
from group_coordinator.pipeline.spark.views import StoreMissing, UnknownView
from tests.ends import check_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from group_coordinator import Failure, register_views
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
register_views(spark, sys.argv[1], names=["log_segments"])
print("it has", [row.n for row in spark.sql("SELECT count(*) AS n FROM log_segments").collect()])
try:
    register_views(spark, sys.argv[1], names=["groups"])
except Failure as error:
    print(error)
"""


@pytest.mark.full
@pytest.mark.spark
def test_a_session_needs_delta_and_of_python_none_that_is_on_the_path(
    root: str, tmp_path: Path
) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o700)
    environment = {**os.environ, "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, root],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    check_end(done.returncode, done.stderr)
    told = done.stdout.splitlines()
    assert told[-2] == "it has [0]"
    assert told[-1].startswith(
        "this session reads no Delta tables: start it with --packages io.delta"
    )


@pytest.mark.parametrize(
    ("master", "chosen", "registered"),
    [
        ("local[2]", "python3", sys.executable),
        ("local[2]", "/opt/python", "/opt/python"),
        ("spark://host:7077", "python3", "python3"),
    ],
    ids=["by default", "chosen", "on a cluster"],
)
def test_the_caller_s_python_is_taken_only_for_spark_s_own_on_this_machine(
    root: str, master: str, chosen: str, registered: str
) -> None:
    """A Python that PYSPARK_PYTHON names is meant, and a cluster has not the caller's.

    There it runs beside the driver as well, where nothing is shipped to it.
    """
    given = {"PYTHONPATH": "shipped", "OTHER": "as it was"}
    context = SimpleNamespace(master=master, pythonExec=chosen, environment=given)
    seen: list[str] = []

    def register(_source: object) -> None:
        seen.append(context.pythonExec)
        paths = context.environment["PYTHONPATH"].split(os.pathsep)
        assert paths[0] == "shipped"
        assert (sysconfig.get_path("purelib") in paths) == master.startswith("spark")
        assert context.environment["OTHER"] == "as it was"
        raise InterruptedError

    class Session:
        sparkContext = context
        dataSource = SimpleNamespace(register=register)

        @classmethod
        def getActiveSession(cls) -> None:
            """No session is active."""

        def createDataFrame(self, rows: object, schema: str) -> None:
            """Make this session the active one."""

    with pytest.raises(InterruptedError):
        register_views(cast("Any", Session()), root, names=["log_segments"])
    assert (seen, context.pythonExec) == ([registered], chosen)
    assert context.environment == {"PYTHONPATH": "shipped", "OTHER": "as it was"}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("root", "package"),
    [
        ("s3a://bucket/groups", "org.apache.hadoop:hadoop-aws:"),
        ("s3://bucket/groups", "org.apache.hadoop:hadoop-aws:"),
        ("abfss://box@account.dfs.core.windows.net/groups", "org.apache.hadoop:hadoop-azure:"),
        ("gs://bucket/groups", "com.google.cloud.bigdataoss:gcs-connector:"),
    ],
)
def test_a_session_that_cannot_reach_the_root_s_store_is_told_what_it_lacks(
    spark: SparkSession, root: str, package: str
) -> None:
    with pytest.raises(StoreMissing, match=rf"cannot reach {root}: .*--packages \S*,{package}"):
        register_views(spark, root)


def test_a_session_of_spark_connect_has_no_driver_to_look_into(root: str) -> None:
    """Its server may have what the client has not: the first look at the store is its own."""

    class Remote:
        @property
        def sparkContext(self) -> Any:
            raise AttributeError

        def sql(self, text: str) -> None:
            raise InterruptedError(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "store_class", lambda _root: "no.such.Class")
        with pytest.raises(InterruptedError, match="VIEW acl_changes"):
            register_views(cast("Any", Remote()), root, names=["acls"])


@pytest.mark.parametrize("name", ["lags", "snapshot_time"])
def test_a_view_that_is_none_is_named(root: str, name: str) -> None:
    with pytest.raises(UnknownView, match=name):
        register_views(cast("Any", None), root, names=[name])
