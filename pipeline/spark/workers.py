"""Registration of Python data sources, which Spark runs in Python workers with this package."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from group_coordinator.pipeline.session.submitted import driver_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

# Spark's default: the first `python3` on the PATH, which may not have this package.
_DEFAULT_PYTHON = "python3"


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, which keeps the workers' Python and PYTHONPATH of this moment."""
    # A session of Spark Connect has no context: its server configures the workers' Python.
    context = getattr(spark, "sparkContext", None)
    with nullcontext() if context is None else _configured_worker_python(context):
        # `save` looks for a format in the active session, which may not be the DataFrame's.
        # `register` refuses a format that another session has, while that session is active.
        # `createDataFrame` makes its session the active one.
        active = type(spark).getActiveSession()
        for session in (spark,) if active in (None, spark) else (spark, active):
            session.createDataFrame([], "n int")
            session.dataSource.register(source)


@contextmanager
def _configured_worker_python(context: SparkContext) -> Iterator[None]:
    """Configure the workers' Python so that it finds this package, and restore it at the end.

    On one machine, workers use the caller's Python unless another one is configured. On a cluster,
    Spark plans a query on the driver's machine with the executors' Python, so PYTHONPATH gets the
    driver's packages. The executors themselves find the package that is shipped to them.
    """
    python, environment = context.pythonExec, context.environment
    if not (context.master or "").startswith("local"):
        path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), driver_path()]))
        context.environment = {**environment, "PYTHONPATH": path}
    elif python == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec, context.environment = python, environment
