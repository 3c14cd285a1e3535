"""The allocator's settings of Spark's workers, for a bench that does their work without Spark."""

from __future__ import annotations

import ctypes

from group_coordinator.pipeline.session.spark_settings import read_defaults

# glibc's malloc.h: what mallopt calls the thresholds that the variables set.
_MALLOPT = {
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": -1,
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": -3,
}


def allocate_as_workers_do() -> bool:
    """Set this process's malloc as conf/spark-defaults.conf sets the workers'; False if it cannot.

    With glibc's own settings a bench would also measure how memory is given back to the system,
    which Spark's workers do not do.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    wanted = read_defaults()
    return all(libc.mallopt(number, int(wanted[key])) for key, number in _MALLOPT.items())
