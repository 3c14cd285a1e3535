"""The worker's end of applyInPandasWithState: who serves a task's stream of groups.

What travels in the stream is `pipeline.session.arrow_groups`'. pyspark's serializers have no types:
hence `Any`. They are imported by name, and late: a release that has them no more has its workers
import this module all the same.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import IO, Any

# Reads a task's stream of groups, and writes what goes back to the JVM.
Serve = Callable[[IO[bytes], IO[bytes]], None]

# What reads and writes a task's stream of groups: up to 4.2 a serializer of its own, with pandas
# frames in it; from 4.3 on the one of all streams of Arrow batches.
_SERIALIZER = "ApplyInPandasWithStateSerializer", "ArrowStreamSerializer"
# What serves the next stream; a worker does one task at a time.
_next: list[Serve] = []


def serve_next(serve: Serve) -> None:
    """Have `serve` read and answer the next stream of groups that this worker gets, and no other.

    A worker asks its task's serializer for the groups, maps the task's function over them and hands
    the serializer the results. For the one stream, the serializer is replaced: it returns no groups
    to map over, and calls `serve` when it is to write the results. The streams of other functions
    in the same worker go Spark's way.
    """
    # Before it is replaced.
    _load_as_spark_does()
    _next[:] = [serve]
    replace(serializer(), "load_stream", _load_stream)


@functools.cache
def serializer() -> Any:
    """The class that reads and writes a task's stream. Raises AttributeError."""
    module = importlib.import_module("pyspark.sql.pandas.serializers")
    first, second = _SERIALIZER
    return getattr(module, first, None) or getattr(module, second)


@functools.cache
def pickle_protocol() -> int:
    """The protocol in which the JVM reads a pickled row."""
    return int(importlib.import_module("pyspark.serializers").pickle_protocol)


def start_arrow_stream(out: IO[bytes]) -> None:
    """Tell the JVM that an Arrow stream follows; until then it also takes an error."""
    serializers = importlib.import_module("pyspark.serializers")
    serializers.write_int(serializers.SpecialLengths.START_ARROW_STREAM, out)


@functools.cache
def _load_as_spark_does() -> Any:
    return serializer().load_stream


def _load_stream(of: Any, stream: IO[bytes]) -> Iterable[object]:
    if not _next:
        return _load_as_spark_does()(of, stream)  # type: ignore[no-any-return]
    serve = _next.pop()
    replace(of, "dump_stream", lambda _nothing, out: serve(stream, out))
    return ()


def replace(owner: object, method: str, by: Callable[..., object]) -> None:
    """Put another function in the place of a method."""
    # As an assignment, mypy would refuse it: it is a method of a class that is not ours.
    setattr(owner, method, by)
