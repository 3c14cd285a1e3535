"""The Python worker's side of applyInPandasWithState, with Arrow and Python lists, without pandas.

Spark's own worker creates a pandas frame for each group, and another for the group's new state.
This module converts a whole Arrow batch to Python lists, and all outputs and new states of the
batch back to Arrow, which is far faster (tests/bench/ARCHIVE.md).

The wire format is the one that Spark's own worker uses, so the JVM needs no change:

* Input: two string columns (group id and event) and the struct `__state`. The struct has one row
  for each run of a group's rows (`_Run`); its remaining rows are null. The runs of one group are
  consecutive and can continue in the next Arrow batch.
* Output: three structs of equal length: the row counts of the other two structs (repeated in every
  row), the function's outputs, and the states to write. The JVM writes the states after it has
  consumed the outputs. A group that neither updates nor removes its state has no state row.

`serve_next` replaces Spark's serializer for one stream, which Spark's UDF profilers then do not
see. pyspark's serializers are untyped, hence `Any`. They are imported by name in functions, so that
workers can import this module on a release without them.
"""

from __future__ import annotations

import functools
import importlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import IO, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyspark

from group_coordinator.pipeline.session.guard import replace_method

SETTING = "spark.group-coordinator.arrow.groups"
_NO_TIMESTAMP = -1
_COUNTS = pa.struct({"dataCount": pa.int32(), "stateCount": pa.int32()})
_OUTPUT = pa.struct({"output": pa.binary()})
_STATE = pa.struct(
    {
        "properties": pa.string(),
        "keyRowAsUnsafe": pa.binary(),
        "object": pa.binary(),
        "oldTimeoutTimestamp": pa.int64(),
    }
)
_SCHEMA = pa.schema({"_0": _COUNTS, "_1": _OUTPUT, "_2": _STATE})
# The opcodes before the column in the JVM's pickle of a state row. A length of four bytes and a
# UTF-8 string follow; unpickling evaluates `bytes(bytearray(text, "latin-1"))`.
_BINARY = b"(cbuiltins\nbytes\nc__builtin__\nbytearray\nX"
# Reads a task's group stream, and writes the results for the JVM.
Serve = Callable[[IO[bytes], IO[bytes]], None]
# The class that reads and writes a task's group stream: up to Spark 4.2 a special serializer with
# pandas frames, from 4.3 on the serializer of all Arrow streams.
_SERIALIZER = "ApplyInPandasWithStateSerializer", "ArrowStreamSerializer"
# The function for the next stream, if any. A worker runs one task at a time.
_next: list[Serve] = []


class UnknownFormat(RuntimeError):
    """A batch from the JVM with unexpected columns; the message names the setting to change."""


class _Run(NamedTuple):
    """Consecutive rows of one group in an Arrow batch, as Spark's column `__state` has them."""

    properties: str  # GroupState as JSON, without its value
    keyRowAsUnsafe: bytes  # returned unchanged
    object: bytes | None  # the pickled state row
    startOffset: int
    numRows: int
    isLastChunk: bool


class Properties(NamedTuple):
    """The GroupState properties that all groups of a batch share.

    `updated` and `removed` are JSON prefixes for a state that was updated or removed, up to the
    value of `timeoutTimestamp`. `now` is the batch's processing time in ms.
    """

    has_timed_out: bool
    now: int
    updated: bytes
    removed: bytes

    @classmethod
    def parse(cls, text: str) -> Properties:
        """Parse the JSON of a GroupState."""
        given = msgspec.json.decode(text, type=dict[str, Any])
        given.pop("timeoutTimestamp")
        heads = []
        for updated in (True, False):
            flags = {"defined": updated, "updated": updated, "removed": not updated}
            encoded = msgspec.json.encode(given | flags)
            heads.append(encoded[:-1] + b',"timeoutTimestamp":')
        return cls(given["hasTimedOut"], given["batchProcessingTimeMs"], *heads)


class ArrowGroupState:
    """The subset of pyspark's GroupState that a function with one state column needs."""

    __slots__ = ("_key", "_properties", "_removed", "_stored", "_timeout", "_value", "hasTimedOut")

    def __init__(self, properties: Properties, key: bytes, stored: bytes | None) -> None:
        self._properties = properties
        self._key = key
        self._stored = stored
        self._value: bytes | None = None
        self._removed = False
        self._timeout = _NO_TIMESTAMP
        self.hasTimedOut = properties.has_timed_out

    @property
    def exists(self) -> bool:
        """Whether there was a state before the call."""
        return self._stored is not None

    @property
    def get(self) -> tuple[bytes, ...]:
        """The state's columns before the call. Raises ValueError unless the state `exists`."""
        if self._stored is None:
            raise ValueError("the group has no state")
        return (unpickle(self._stored),)

    def getCurrentProcessingTimeMs(self) -> int:
        """Return the processing time of the batch, in ms."""
        return self._properties.now

    def update(self, value: tuple[bytes]) -> None:
        """Set the state to write. A timer of an earlier batch is cleared."""
        self._value, self._removed = value[0], False

    def remove(self) -> None:
        """Remove the group's state."""
        self._value, self._removed = None, True

    def setTimeoutDuration(self, ms: int) -> None:
        """Set the timer to `ms` after the batch's processing time.

        Raises ValueError if the state was not updated or `ms` is not positive.
        """
        if self._value is None or ms <= 0:
            raise ValueError(f"a timer needs an updated state and a positive duration, not {ms} ms")
        self._timeout = self.getCurrentProcessingTimeMs() + ms

    def to_write(self) -> tuple[bytes, bytes, bytes | None] | None:
        """Return properties, key and pickled row for the JVM; None if the state is unchanged."""
        updated = self._value is not None
        if not (updated or self._removed):
            return None
        known = self._properties.updated if updated else self._properties.removed
        row = pickle.dumps((self._value,), pickle_protocol()) if updated else None
        return b"%b%d}" % (known, self._timeout), self._key, row


def unpickle(row: bytes) -> bytes:
    """Return the single binary column of a state row that the JVM has pickled."""
    at = row.find(_BINARY)
    if at < 0:
        value: bytes = pickle.loads(row)[0]
        return value
    # Unpickling the row would parse the JSON of its schema each time, so the bytes are cut out.
    start = at + len(_BINARY) + 4
    size = int.from_bytes(row[start - 4 : start], "little")
    return row[start : start + size].decode().encode("latin-1")


# (group id, events, state) -> output row; None for no output.
Decide = Callable[[str | None, list[str], ArrowGroupState], bytes | None]


def answer_batches(
    batches: Iterable[pa.RecordBatch], decide: Decide, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Call `decide` for each group of the JVM's batches; yield the batches to return to the JVM.

    A batch without outputs and state changes yields nothing. Raises UnknownFormat if a batch has
    other columns than `columns` and Spark's `__state`.
    """
    # The groups of a batch share a few distinct values of properties.
    properties_of = cache(Properties.parse)
    state: ArrowGroupState | None = None
    events: list[str] = []
    for batch in batches:
        ids, texts, runs = _columns(batch, columns)
        outputs: list[bytes] = []
        writes: list[tuple[bytes, bytes, bytes | None]] = []
        for run in runs:
            if state is None:
                properties = properties_of(run.properties)
                state, events = ArrowGroupState(properties, run.keyRowAsUnsafe, run.object), []
            end = run.startOffset + run.numRows
            if not state.hasTimedOut:  # the single row of a timed-out group only carries its key
                events += texts[run.startOffset : end]
            if run.isLastChunk:
                output = decide(ids[run.startOffset], events, state)
                if output is not None:
                    outputs.append(output)
                written = state.to_write()
                if written is not None:
                    writes.append(written)
                state = None
        if outputs or writes:
            yield _to_jvm(outputs, writes)


def _columns(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> tuple[list[str | None], list[str], Iterator[_Run]]:
    """Return the group ids and the events of a batch, one for each row, and its runs."""
    if tuple(batch.schema.names) != (*columns, "__state"):
        raise UnknownFormat(
            f"Spark {pyspark.__version__} sends the columns {batch.schema.names}: set {SETTING}"
            " to false"
        )
    ids, texts, state = batch.columns
    present = state.slice(0, len(state) - state.null_count)
    fields = [present.field(name).to_pylist() for name in _Run._fields]
    return ids.to_pylist(), texts.to_pylist(), map(_Run._make, zip(*fields, strict=True))


def _to_jvm(
    outputs: list[bytes], writes: list[tuple[bytes, bytes, bytes | None]]
) -> pa.RecordBatch:
    rows = max(len(outputs), len(writes))
    properties, keys, objects = zip(*writes, strict=True) if writes else ((), (), ())
    # Spark does not send the previous timer to Python, so the old timer is always "none".
    states = (properties, keys, objects, (_NO_TIMESTAMP,) * len(writes))
    counts = ((len(outputs),) * rows, (len(writes),) * rows)
    columns = (counts, (outputs,), states)
    arrays = [_struct(field.type, each, rows) for field, each in zip(_SCHEMA, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _struct(kind: pa.StructType, columns: Sequence[Sequence[Any]], rows: int) -> pa.StructArray:
    arrays = [
        pa.array([*column, *repeat(None, rows - len(column))], field.type)
        for field, column in zip(kind, columns, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


# --- in a worker ---------------------------------------------------------------------------------


def serve_next(decide: Decide, columns: Sequence[str]) -> None:
    """Call `decide` for the groups of the next stream that this worker reads, and only of that one.

    `columns` are the names of the stream's two columns.

    A worker loads groups with its task's serializer, maps the task's function over them, and dumps
    the results with the serializer. For this stream, `load_stream` returns no groups, and
    `dump_stream` calls `decide`. Other streams of the worker use Spark's serializer unchanged.
    """
    # Remember the original before it is replaced.
    _load_as_spark_does()
    _next[:] = [lambda stream, out: _serve(stream, out, decide, columns)]
    replace_method(serializer(), "load_stream", _load_stream)


def _serve(stream: IO[bytes], out: IO[bytes], decide: Decide, columns: Sequence[str]) -> None:
    """Read the JVM's Arrow stream and write the results; write no stream if there are none."""
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in answer_batches(pa.ipc.open_stream(stream), decide, columns):
        if writer is None:
            # Start late, because the JVM accepts an error only before the Arrow stream starts.
            start_arrow_stream(out)
            writer = pa.RecordBatchStreamWriter(out, _SCHEMA)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


@functools.cache
def serializer() -> Any:
    """Return pyspark's serializer class for group streams. Raises AttributeError if missing."""
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
    replace_method(of, "dump_stream", lambda _nothing, out: serve(stream, out))
    return ()
