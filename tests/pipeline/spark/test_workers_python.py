"""A session's workers read the views though Spark would start another Python than the caller's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from group_coordinator.pipeline.spark import register_views
from tests.ends import check_end

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from group_coordinator import register_views
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
register_views(spark, sys.argv[1])
print("lag has", [row.n for row in spark.sql("SELECT count(*) AS n FROM lag").collect()])
"""


@pytest.mark.spark
def test_views_are_read_where_the_python_on_the_path_has_no_packages(
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
    assert done.stdout.splitlines()[-1] == "lag has [0]"


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
    """A Python that PYSPARK_PYTHON names is meant, and a cluster has not the caller's."""
    context = SimpleNamespace(master=master, pythonExec=chosen)
    seen: list[str] = []

    def register(_source: object) -> None:
        seen.append(context.pythonExec)
        raise InterruptedError

    spark = SimpleNamespace(sparkContext=context, dataSource=SimpleNamespace(register=register))
    with pytest.raises(InterruptedError):
        register_views(cast("Any", spark), root)
    assert (seen, context.pythonExec) == ([registered], chosen)
