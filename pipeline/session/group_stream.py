"""The replacement of pyspark's serializer for one group stream of applyInPandasWithState.

`pipeline.session.arrow_groups` reads and writes the contents of the stream. pyspark's serializers
are untyped, hence `Any`. They are imported by name in functions, so that workers can import this
module on a release without them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import IO, Any

# Reads a task's group stream, and writes the results for the JVM.
Serve = Callable[[IO[bytes], IO[bytes]], None]

# The class that reads and writes a task's group stream: up to Spark 4.2 a special serializer with
# pandas frames, from 4.3 on the serializer of all Arrow streams.
_SERIALIZER = "ApplyInPandasWithStateSerializer", "ArrowStreamSerializer"
# The function for the next stream, if any. A worker runs one task at a time.
_next: list[Serve] = []


def serve_next(serve: Serve) -> None:
    """Call `serve` for the next group stream of this worker, and only for that stream.

    A worker loads groups with its task's serializer, maps the task's function over them, and dumps
    the results with the serializer. For the one stream, `load_stream` returns no groups and
    `dump_stream` calls `serve`. Streams of other functions in the same worker use Spark's
    serializer unchanged.
    """
    # Remember the original before it is replaced.
    _load_as_spark_does()
    _next[:] = [serve]
    replace(serializer(), "load_stream", _load_stream)


@functools.cache
def serializer() -> Any:
    """Return the serializer class of group streams. Raises AttributeError if there is none."""
    module = importlib.import_module("pyspark.sql.pandas.serializers")
    first, second = _SERIALIZER
    return getattr(module, first, None) or getattr(module, second)


@functools.cache
def pickle_protocol() -> int:
    """Return the pickle protocol that the JVM reads."""
    return int(importlib.import_module("pyspark.serializers").pickle_protocol)


def start_arrow_stream(out: IO[bytes]) -> None:
    """Write the marker of an Arrow stream. Before it, the JVM also accepts an error."""
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
    """Replace a method of a class or object."""
    # setattr, because mypy rejects an assignment to a method.
    setattr(owner, method, by)
