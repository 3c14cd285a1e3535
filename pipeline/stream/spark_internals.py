"""Everything this project uses of Spark that Spark does not publish.

A release of Spark may change any of it without notice, so no other module reaches for it. Whoever
moves to a new release looks here first:

* the driver's JVM, through py4j, and Hadoop's properties in it;
* the worker's end of applyInPandasWithState: which serializer reads and writes a task's stream, and
  how the stream begins. What travels in it is `pipeline.stream.arrow_groups`'.

Neither py4j's objects nor pyspark's serializers have types: hence `Any`, and the calls that mypy is
told to ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

import pyspark
from pyspark import SparkContext
from pyspark.serializers import SpecialLengths, pickle_protocol, write_int
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The releases of Spark whose stream of groups `pipeline.stream.arrow_groups` reads and writes.
KNOWN_SPARK = "4.2."
PICKLE_PROTOCOL = pickle_protocol

# --- the driver's JVM ---------------------------------------------------------------------------


def jvm(spark: SparkSession) -> Any:
    """The driver's JVM: its classes by their full names."""
    gateway = spark.sparkContext._jvm
    assert gateway is not None  # only Spark Connect has none
    return gateway


def runs_jvm() -> bool:
    """Whether this process has a JVM, be it one whose session has been stopped."""
    return SparkContext._gateway is not None


def hadoop_properties(spark: SparkSession) -> Any:
    """Hadoop's Configuration in the driver, as Java has it."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver's JVM finds a class."""
    loader = jvm(spark).Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None


# --- a worker's stream of groups ----------------------------------------------------------------

# Reads a task's stream of groups, and writes what goes back to the JVM.
Serve = Callable[[IO[bytes], IO[bytes]], None]

_load_for_pandas = ApplyInPandasWithStateSerializer.load_stream
# What serves the next stream; a worker does one task at a time.
_next: list[Serve] = []


def is_known_spark() -> bool:
    """Whether this Spark is of the releases `KNOWN_SPARK`."""
    return pyspark.__version__.startswith(KNOWN_SPARK)


def serve_next(serve: Serve) -> None:
    """Have `serve` read and answer the next stream of groups that this worker gets, and no other.

    A worker asks its task's serializer for the groups, maps the task's function over them and hands
    the serializer the results. For the one stream, the serializer is replaced: it returns no groups
    to map over, and calls `serve` when it is to write the results. The streams of other functions
    in the same worker go Spark's way.
    """
    _next[:] = [serve]
    _replace(ApplyInPandasWithStateSerializer, "load_stream", _load_stream)


def start_arrow_stream(out: IO[bytes]) -> None:
    """Tell the JVM that an Arrow stream follows; until then it also takes an error."""
    write_int(SpecialLengths.START_ARROW_STREAM, out)  # type: ignore[no-untyped-call]


def _load_stream(
    serializer: ApplyInPandasWithStateSerializer, stream: IO[bytes]
) -> Iterable[object]:
    if not _next:
        return _load_for_pandas(serializer, stream)  # type: ignore[no-any-return,no-untyped-call]
    serve = _next.pop()
    _replace(serializer, "dump_stream", lambda _nothing, out: serve(stream, out))
    return ()


def _replace(owner: object, method: str, by: Callable[..., object]) -> None:
    # As an assignment, mypy would refuse it: it is a method of a class that is not ours.
    setattr(owner, method, by)
