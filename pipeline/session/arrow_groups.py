"""The worker's end of applyInPandasWithState without pandas: Arrow in, Python lists, Arrow out.

This module turns a batch into Python lists once, and all outputs and new states of the batch into
Arrow once. Spark's own worker cuts each group out of the Arrow batch as a pandas frame, and makes a
frame of one row of the group's new state, which takes far longer for each group
(tests/bench/ARCHIVE.md).

The format on the wire is Spark's own; the JVM sees no difference:

* in: the stream's two columns of texts, a group's id and its events, and the struct `__state`,
  which has one row for each run of a group's rows (`_Run`) and then nulls. The runs of a group
  follow each other, if need be into the next Arrow batch.
* out: three structs of equal length: the numbers of rows that the other two use (the same numbers
  in every row), the function's outputs, and the states to write. The JVM takes up the states when
  it has consumed the outputs. A group that neither updates nor removes its state has no row among
  the states: the JVM would parse its properties and find nothing to write.

The stream that `serve_next` announces is served here, in place of Spark's serializer
(`pipeline.session.group_stream`). Spark's profilers of UDFs do not see it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import IO, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyspark

from group_coordinator.pipeline.session import group_stream

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

# What precedes the column in the JVM's pickle of a state's row. After it come the length of a text,
# in four bytes, and the text; unpickling makes `bytes(bytearray(text, "latin-1"))` of it.
_BINARY = b"(cbuiltins\nbytes\nc__builtin__\nbytearray\nX"


class UnknownFormat(RuntimeError):
    """What the JVM sent is not what this module reads; the message says how to do without it."""


class _Run(NamedTuple):
    """Consecutive rows of one group, as `__state` describes them."""

    properties: str  # GroupState as JSON, without its value
    keyRowAsUnsafe: bytes  # returned unchanged
    object: bytes | None  # the state's row, pickled
    startOffset: int
    numRows: int
    isLastChunk: bool


class Properties(NamedTuple):
    """What all states of a batch have in common.

    `updated` and `removed` are what the JVM reads of a state that was updated or removed: its JSON
    up to the value of the timer.
    """

    has_timed_out: bool
    now: int
    updated: bytes
    removed: bytes

    @classmethod
    def parse(cls, text: str) -> Properties:
        """Read GroupState's JSON."""
        given = msgspec.json.decode(text, type=dict[str, Any])
        given.pop("timeoutTimestamp")
        heads = []
        for updated in (True, False):
            flags = {"defined": updated, "updated": updated, "removed": not updated}
            encoded = msgspec.json.encode(given | flags)
            heads.append(encoded[:-1] + b',"timeoutTimestamp":')
        return cls(given["hasTimedOut"], given["batchProcessingTimeMs"], *heads)


class ArrowGroupState:
    """As much of pyspark's GroupState as a function with one column of state uses."""

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
        """The state's columns before the call; raises ValueError unless it `exists`."""
        if self._stored is None:
            raise ValueError("the group has no state")
        return (unpickle(self._stored),)

    def getCurrentProcessingTimeMs(self) -> int:
        """The batch's time."""
        return self._properties.now

    def update(self, value: tuple[bytes]) -> None:
        """Write this state, and clear the timer."""
        self._value, self._removed = value[0], False

    def remove(self) -> None:
        """Forget the group."""
        self._value, self._removed = None, True

    def setTimeoutDuration(self, ms: int) -> None:
        """Set the timer, counted from the batch's time; raises ValueError without an update."""
        if self._value is None or ms <= 0:
            raise ValueError(f"a timer of {ms} ms without an update, or none at all")
        self._timeout = self.getCurrentProcessingTimeMs() + ms

    def to_write(self) -> tuple[bytes, bytes, bytes | None] | None:
        """What the JVM is to write: properties, key and pickled row; None for nothing."""
        updated = self._value is not None
        if not (updated or self._removed):
            return None
        known = self._properties.updated if updated else self._properties.removed
        row = pickle.dumps((self._value,), group_stream.pickle_protocol()) if updated else None
        return b"%b%d}" % (known, self._timeout), self._key, row


def unpickle(row: bytes) -> bytes:
    """The one column, a binary, of a state's row that the JVM has pickled."""
    at = row.find(_BINARY)
    if at < 0:
        value: bytes = pickle.loads(row)[0]
        return value
    # Not by unpickling the row, which parses the JSON of its schema each time.
    start = at + len(_BINARY) + 4
    size = int.from_bytes(row[start - 4 : start], "little")
    return row[start : start + size].decode().encode("latin-1")


# A group's id, its events and its state -> its row of output, None for silence.
Decide = Callable[[str | None, list[str], ArrowGroupState], bytes | None]


def answer_batches(
    batches: Iterable[pa.RecordBatch], decide: Decide, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Decide the groups of each batch from the JVM; yield what goes back, a batch for a batch.

    Raises UnknownFormat for columns that are not the stream's `columns`, or not Spark's.
    """
    # The groups of a batch share a few properties.
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
            if not state.hasTimedOut:  # the one row of such a group only carries its key
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
    """The group ids and events of a batch, a row each, and its runs."""
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
    # Spark does not tell Python the timer that was set before, so the old timer is always none.
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
    """Let `decide` have the groups of the next stream that this worker reads.

    `columns` are the names of the stream's two columns.
    """
    group_stream.serve_next(lambda stream, out: _serve(stream, out, decide, columns))


def _serve(stream: IO[bytes], out: IO[bytes], decide: Decide, columns: Sequence[str]) -> None:
    """Read the JVM's Arrow stream and write ours; nothing, if nothing is to be said."""
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in answer_batches(pa.ipc.open_stream(stream), decide, columns):
        if writer is None:
            # Only now: until an Arrow stream begins, the JVM also takes an error.
            group_stream.start_arrow_stream(out)
            writer = pa.RecordBatchStreamWriter(out, _SCHEMA)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()
