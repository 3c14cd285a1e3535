"""The JVM's stream to a worker of applyInPandasWithState, and the two ways to answer it."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import worker
from pyspark.serializers import SpecialLengths, read_int
from pyspark.sql.pandas import serializers
from pyspark.sql.types import BinaryType, StructField, StructType

from group_coordinator.pipeline.session import arrow_groups
from group_coordinator.pipeline.stream.packed_events import STREAM_COLUMNS
from group_coordinator.pipeline.stream.stateful import GroupFunction

# Whether applyInPandasWithState has a separate serializer, as up to Spark 4.2.
OF_ITS_OWN = hasattr(serializers, "ApplyInPandasWithStateSerializer")

NOW = 1_000_000
UNTOUCHED = {"updated": False, "removed": False, "timeoutTimestamp": -1}
_RUN = pa.struct(
    {
        "properties": pa.string(),
        "keyRowAsUnsafe": pa.binary(),
        "object": pa.binary(),
        "startOffset": pa.int32(),
        "numRows": pa.int32(),
        "isLastChunk": pa.bool_(),
    }
)
_OUTPUT_TYPE = StructType([StructField("output", BinaryType())])
_STATE_TYPE = StructType([StructField("state", BinaryType())])


class Group(NamedTuple):
    """A group of the JVM; after a timeout it has one row without an event."""

    group_id: str | None
    events: list[str]
    stored: bytes | None = None
    timed_out: bool = False


class Said(NamedTuple):
    """The answer: the rows of output, and the states by their group's id."""

    outputs: list[bytes]
    states: dict[str, tuple[dict[str, Any], bytes | None, int]]


def from_jvm(groups: Sequence[Group], rows_a_batch: int = 10_000) -> io.BytesIO:
    """Return the Arrow stream of these groups, cut into batches of rows as Spark cuts it."""
    cells: list[tuple[str | None, str | None]] = []
    runs: list[dict[str, Any]] = []
    batches: list[pa.RecordBatch] = []

    def end_batch() -> None:
        ids, events = (pa.array(column, pa.string()) for column in zip(*cells, strict=True))
        states = pa.array(runs + [None] * (len(cells) - len(runs)), _RUN)
        batches.append(pa.record_batch([ids, events, states], ["group_id", "events", "__state"]))
        cells.clear()
        runs.clear()

    for group in groups:
        events = [None] if group.timed_out else group.events
        start = len(cells)
        for number, event in enumerate(events):
            cells.append((group.group_id, event))
            last = number == len(events) - 1
            if last or len(cells) == rows_a_batch:
                runs.append(_run(group, start, len(cells) - start, last))
            if len(cells) == rows_a_batch:
                end_batch()
                start = 0
    if cells:
        end_batch()
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return io.BytesIO(stream.getvalue())


def _run(group: Group, start: int, rows: int, last: bool) -> dict[str, Any]:
    properties = {
        "batchProcessingTimeMs": NOW,
        "eventTimeWatermarkMs": -1,
        "timeoutConf": "ProcessingTimeTimeout",
        "hasTimedOut": group.timed_out,
        "watermarkPresent": False,
        "defined": group.stored is not None,
        **UNTOUCHED,
    }
    stored = group.stored
    return {
        "properties": json.dumps(properties),
        "keyRowAsUnsafe": repr(group.group_id).encode(),
        "object": None if stored is None else pickled_row(stored),
        "startOffset": start,
        "numRows": rows,
        "isLastChunk": last,
    }


def pickled_row(state: bytes) -> bytes:
    """Return a state's row as the JVM pickles it."""
    return b"".join(
        (
            b"\x80\x02cpyspark.sql.types\n_create_row_inbound_converter\nq\x00",
            b"cpyspark.sql.types\n_parse_datatype_json_string\n",
            _text(json.dumps(_STATE_TYPE.jsonValue(), separators=(",", ":"))),
            b"q\x01\x85Rq\x02\x85R(cbuiltins\nbytes\nc__builtin__\nbytearray\n",
            _text(state.decode("latin-1")),
            b"q\x03" + _text("latin-1") + b"q\x04\x86Rq\x05\x85Rq\x06tRq\x07.",
        )
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def serializer(rows_a_batch: int = 10_000) -> Any:
    """Return Spark's serializer as its worker creates it."""
    if not OF_ITS_OWN:
        return serializers.ArrowStreamSerializer(write_start_stream=True)
    return serializers.ApplyInPandasWithStateSerializer(
        timezone="UTC",
        safecheck=False,
        assign_cols_by_name=True,
        prefer_int_ext_dtype=False,
        state_object_schema=_STATE_TYPE,
        arrow_max_records_per_batch=rows_a_batch,
        prefers_large_var_types=False,
        int_to_decimal_coercion_enabled=False,
    )


def work(function: GroupFunction, stream: io.BytesIO, rows_a_batch: int = 10_000) -> io.BytesIO:
    """Do the work of Spark's worker for a task: load, map the function over the groups, dump."""
    ser = serializer(rows_a_batch)
    if not OF_ITS_OWN:
        # Its worker maps whole batches, by a function that cannot be called alone.
        return _dumped(ser, ser.load_stream(stream))
    call = worker.wrap_grouped_map_pandas_udf_with_state(function, _OUTPUT_TYPE, None)

    def mapper(each: tuple[Iterator[Any], Any]) -> Any:
        (first, _), *rest = each[0]
        frames = ([*columns] for columns in itertools.chain([first], (more for more, _ in rest)))
        return call([first[0]], frames, each[1])

    return _dumped(ser, map(mapper, ser.load_stream(stream)))


def _dumped(ser: Any, results: Any) -> io.BytesIO:
    out = io.BytesIO()
    ser.dump_stream(results, out)
    out.seek(0)
    return out


def through_pandas(function: GroupFunction, stream: io.BytesIO, rows_a_batch: int = 10_000) -> Said:
    """Process the stream by Spark's own worker code."""
    return read_said(work(function, stream, rows_a_batch))


def through_arrow(function: GroupFunction, stream: io.BytesIO, rows_a_batch: int = 10_000) -> Said:
    """Process the stream by this project's code, as after unpickling the function in a worker."""
    arrow_groups.serve_next(function.decide, STREAM_COLUMNS)
    return read_said(work(function, stream, rows_a_batch))


def read_said(out: io.BytesIO) -> Said:
    """Read as the JVM reads: counts in the first row, then this many rows of each struct."""
    said = Said([], {})
    if not out.getbuffer().nbytes:
        return said
    assert read_int(out) == SpecialLengths.START_ARROW_STREAM
    for batch in pa.ipc.open_stream(out):
        assert batch.num_rows > 0
        counts, outputs, states = (column.to_pylist() for column in batch.columns)
        assert [list(column.type) for column in batch.columns] == [
            [pa.field("dataCount", pa.int32()), pa.field("stateCount", pa.int32())],
            [pa.field("output", pa.binary())],
            [
                pa.field("properties", pa.string()),
                pa.field("keyRowAsUnsafe", pa.binary()),
                pa.field("object", pa.binary()),
                pa.field("oldTimeoutTimestamp", pa.int64()),
            ],
        ]
        said.outputs.extend(row["output"] for row in outputs[: counts[0]["dataCount"]])
        for state in states[: counts[0]["stateCount"]]:
            properties, key, value, old = state.values()
            assert key.decode() not in said.states, "a group is told of once"
            said.states[key.decode()] = (json.loads(properties), value, old)
    return said
