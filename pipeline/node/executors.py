"""The check that an executor of a cluster has the packages that the job imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node import needed
from group_coordinator.pipeline.node.diagnosis import in_one_line
from group_coordinator.pipeline.session.driver_jvm import by_value
from group_coordinator.pipeline.session.guard import unless_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PackagesMissing(Failure):
    """An executor's Python lacks packages; the message names them and says how to ship them."""


class NoTask(Failure):
    """No task runs on an executor; the message says why."""


def check_executors(spark: SparkSession) -> None:
    """Check one executor of a cluster for the job's packages. Raises PackagesMissing, NoTask.

    Without this check, the first batch fails with an executor's traceback, printed four times.
    """
    master = spark.conf.get("spark.master")
    if master is None or master.startswith("local"):
        return
    missing = None
    # Sent by value, because an executor without this package cannot import the function.
    with unless_missing("what executors lack is not looked for"), by_value(needed):
        task = spark.sparkContext.parallelize([needed.NEEDED], 1).map(needed.missing_modules)
        try:
            (missing,) = task.collect()
        except Py4JError as error:
            raise NoTask(f"no task runs on an executor: {in_one_line(error)}") from error
    if missing is not None:
        raise PackagesMissing(needed.advice("executor", missing))
