"""Packed events: each request event of the stream is one string, `<order key><event as JSON>`.

Spark delivers a group's rows in no order, and each column costs time on its way to Python. Sorting
the strings restores the order; the event follows the first `KEY_WIDTH` characters.

The key is the row's number in the batch, so events are ordered by the table's commits, and by the
rows in a commit. As on a Kafka broker, the request that arrives first is decided first, whatever
the producers' clocks say. Only a take-over reads files after they were rewritten; it orders by
`sent_at`, then by the event's text.

Arrow functions build the JSON. Only lists, bytes, and texts with characters that JSON escapes are
converted to Python values, which is slower. Each Arrow call has a fixed cost: columns with only
nulls are dropped first, and one call joins the texts of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.stream.contract_types import in_contract_types, texts
from group_coordinator.schemas.decoding import REFUSED

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.partition import PartitionSet

# The digits of the order key: enough for the microseconds since 1970 of any Spark timestamp.
KEY_WIDTH = 18
# The key of the coordinator's own control events, which come before every request.
FIRST_KEY = "0" * KEY_WIDTH
# The key of an event of a take-over that has no `sent_at`: after those that have one.
NO_TIME = "8" * KEY_WIDTH
# The first row number after the events of the bootstrap in one batch.
AFTER_BOOTSTRAP: int = 9 * 10 ** (KEY_WIDTH - 1)
# The first row number after the requests that the stream had passed over (`Offset.missed`).
AFTER_MISSED: int = AFTER_BOOTSTRAP + 5 * 10 ** (KEY_WIDTH - 2)
# A row of a bootstrap has one event; a row of the stream has all events of a group, one a line.
PACKED_SCHEMA = pa.schema({"group_id": pa.string(), "event": pa.string()})
STREAM_COLUMNS = ("group_id", "events")
STREAM_SCHEMA = pa.schema([(name, pa.string()) for name in STREAM_COLUMNS])
# The sizes at which a row of the stream, characters, and an Arrow batch of rows, bytes, end.
_ROW_CHARS = 1 << 20
_PIECE_CHARS = 4 << 20

_MICROS = pa.timestamp("us", tz="UTC")
# Times with more digits than a key are ordered as the last time before `NO_TIME`.
_LAST_TIME = int(NO_TIME) - 1
# The bytes that JSON escapes.
_ESCAPED = bytes(range(0x20)) + b'"\\'
_encode = msgspec.json.Encoder().encode
# Packing enlarges a row at most so many times: JSON writes a control character as six bytes, and a
# row of empty texts has the names of its fields.
MOST_GROWTH = 8
# The column of the rows' numbers. No column of the contract has such a name.
_NUMBER = "the row's number"


def unpack(rows: list[str]) -> list[str]:
    """Return a group's events as JSON texts in order, from rows of packed events, one a line."""
    return [event[KEY_WIDTH:] for event in sorted("\n".join(rows).split("\n"))] if rows else []


def of_partitions(events: pa.Table, partition_set: PartitionSet | None) -> pa.Table:
    """Return the packed events of the groups of a partition set; None returns all events."""
    if partition_set is None:
        return events
    return events.filter(in_partitions(events.column("group_id").combine_chunks(), partition_set))


def pack_rows(
    rows: pa.Table, first: int | None = None, partition_set: PartitionSet | None = None
) -> pa.Table:
    """Return the group id of each row, and the row as one string with an order key.

    The result has `PACKED_SCHEMA`. Only rows of `partition_set` are included; None includes all.
    The order key is the row's number, counted from `first`. If `first` is None, the key is
    `sent_at`, and rows without `sent_at` come last.

    In the JSON, nulls are omitted, bytes are base64, and `sent_at` is in ms. A column of another
    type than the schema of `requests` has is converted (`pipeline.stream.contract_types`). The
    column `REFUSED`, the reason why a request is refused, becomes a field of the JSON.
    """
    return _pack(select_rows(rows, first, partition_set))


def select_rows(rows: pa.Table, first: int | None, partition_set: PartitionSet | None) -> pa.Table:
    """Return the rows of the groups of a partition set, with row numbers from `first` on.

    `partition_set` None selects all rows; `first` None adds no numbers. Selecting before packing
    lets each of several nodes pack only its own requests.
    """
    if first is not None:
        numbers = np.arange(first, first + len(rows), dtype=np.int64)
        rows = rows.append_column(_NUMBER, pa.array(numbers))
    if partition_set is None:
        return rows
    ids = in_contract_types(rows.select(["group_id"] if "group_id" in rows.column_names else []))
    mine = in_partitions(texts(ids, "group_id", len(rows)), partition_set)
    return rows if mine.true_count == len(rows) else rows.filter(mine)


def pack_together(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Pack results of `select_rows`; tables that are packed already are kept.

    Tables of one schema are packed in one call, because a call for few rows costs about as much as
    one for some hundred. The row numbers keep the order of events.
    """
    packed = []
    rows: dict[pa.Schema, list[pa.Table]] = {}
    for table in tables:
        if table.schema.equals(PACKED_SCHEMA):
            packed.append(table)
        else:
            rows.setdefault(table.schema, []).append(table)
    return packed + [_pack(pa.concat_tables(each)) for each in rows.values()]


def _pack(rows: pa.Table) -> pa.Table:
    length = len(rows)
    if not length:
        return PACKED_SCHEMA.empty_table()
    columns = in_contract_types(rows)
    if REFUSED in rows.column_names:
        columns[REFUSED] = rows.column(REFUSED).combine_chunks()
    micros = pa.nulls(length, pa.int64())
    if "sent_at" in columns and pa.types.is_timestamp(columns["sent_at"].type):
        micros = columns["sent_at"].cast(_MICROS, safe=False).cast(pa.int64())
        columns["sent_at"] = pc.divide(pc.subtract(micros, _modulo(micros, 1000)), 1000)
    if _NUMBER in rows.column_names:
        numbers = rows.column(_NUMBER).combine_chunks()
    else:
        numbers = pc.min_element_wise(micros, _LAST_TIME, skip_nulls=False)
        numbers = pc.max_element_wise(numbers, 0, skip_nulls=False)
    keys = pc.coalesce(pc.ascii_lpad(numbers.cast(pa.string()), KEY_WIDTH, "0"), NO_TIME)
    events = pc.binary_join_element_wise(keys, _object(columns, length), "")
    return pa.table([texts(columns, "group_id", length), events], schema=PACKED_SCHEMA)


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    """Return the remainder as Python does: it is not negative."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, by), rest)


def _object(fields: dict[str, pa.Array], length: int) -> pa.Array:
    parts: list[pa.Array | str] = ["{"]
    # A comma precedes a member that follows one that every row has, and follows a member before it.
    # So no row has a comma too many.
    is_first = True
    for name, array in fields.items():
        if array.null_count == length:
            continue
        opening, values, closing = _json(array)
        opening = f'"{name}":{opening}'
        if not values.null_count:
            parts += [opening if is_first else f",{opening}", values, closing]
            is_first = False
        elif is_first:
            parts.append(_or_nothing(opening, values, f"{closing},"))
        else:
            parts.append(_or_nothing(f",{opening}", values, closing))
    if len(parts) == 1:
        return pa.array(["{}"] * length, pa.string())
    if is_first:
        joined = pc.binary_join_element_wise(*parts, "")
        return pc.binary_join_element_wise(pc.ascii_rtrim(joined, ","), "}", "")
    return pc.binary_join_element_wise(*_merged([*parts, "}"]), "")


def _or_nothing(before: str, values: pa.Array, after: str) -> pa.Array:
    """Return each value between two texts; "" for null."""
    return pc.coalesce(pc.binary_join_element_wise(before, values, after, ""), "")


def _merged(parts: list[pa.Array | str]) -> list[pa.Array | str]:
    """Return the parts with adjacent texts joined, because each part costs time for every row."""
    merged: list[pa.Array | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    return merged


def _json(array: pa.Array) -> tuple[str, pa.Array, str]:
    """Return the values as JSON texts, null for null, and the quotes before and after each."""
    kind = array.type
    if pa.types.is_integer(kind):
        return "", array.cast(pa.string()), ""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = array.cast(pa.string())
        if not _has_escaped(texts):
            return '"', texts, '"'
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        texts = _object(dict(zip(names, array.flatten(), strict=True)), len(array))
        return "", pc.if_else(array.is_valid(), texts, None) if array.null_count else texts, ""
    encoded = [None if value is None else _encode(value) for value in _plain_values(array)]
    return "", pa.array(encoded, pa.binary()).cast(pa.string()), ""


def _has_escaped(texts: pa.StringArray) -> bool:
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    places = memoryview(offsets).cast("i")
    begin, end = int(places[texts.offset]), int(places[texts.offset + len(texts)])
    content: bytes = data.slice(begin, end - begin).to_pybytes()
    return len(content.translate(None, _ESCAPED)) < end - begin


def _plain_values(array: pa.Array) -> Sequence[Any]:
    """Return an array as Python values, with structs as dicts of their non-null fields."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        columns = [_plain_values(child) for child in array.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            if valid
            else None
            for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _plain_values(array.flatten())
        lengths = array.value_lengths().to_pylist()
        ends = list(accumulate(length or 0 for length in lengths))
        return [
            None if length is None else items[end - length : end]
            for length, end in zip(lengths, ends, strict=True)
        ]
    return list(array.to_pylist())


def stream_batches(tables: list[pa.Table]) -> list[pa.RecordBatch]:
    """Join packed events into rows, each of one group, in Arrow batches of bounded size."""
    if not tables:
        return []
    grouped = pa.concat_tables(tables).group_by("group_id", use_threads=False)
    lists = grouped.aggregate([("event", "list")]).combine_chunks()
    groups, events = lists.column("group_id"), lists.column("event_list")
    texts = pc.binary_join(events, "\n")
    if pc.max(pc.binary_length(texts)).as_py() > _ROW_CHARS:
        pairs = zip(groups.to_pylist(), events.to_pylist(), strict=True)
        rows = [(group, text) for group, lines in pairs for text in _bounded(lines)]
        groups, texts = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    table = pa.table([groups, texts], schema=STREAM_SCHEMA)
    pieces = -(-table.nbytes // _PIECE_CHARS)
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(
        max_chunksize=-(-len(table) // pieces)
    )
    return batches


def _bounded(lines: list[str]) -> Iterator[str]:
    """Join lines into texts; end a text once its lines have `_ROW_CHARS` characters or more."""
    gathered: list[str] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= _ROW_CHARS:
            yield "\n".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield "\n".join(gathered)


# The longest id that the vectorized sum allows, bytes.
_LONGEST = 256
# Java's hash: each character times 31 to the power of the number of characters after it, modulo
# 2^32.
_WEIGHTS = np.array([pow(31, after, 1 << 32) for after in range(_LONGEST)], np.uint32)
_MIN_HASH = 1 << 31


def in_partitions(groups: pa.StringArray, partition_set: PartitionSet) -> pa.BooleanArray:
    """Return whether each group belongs to a partition of the set; null belongs to partition 0."""
    wanted = np.zeros(partition_set.of, bool)
    wanted[[each for each in partition_set.partitions if each < partition_set.of]] = True
    return pa.array(wanted[partitions_for(groups, partition_set.of)])


def partitions_for(groups: pa.StringArray, num_partitions: int) -> np.ndarray:
    """Return the offsets partition of each group as `partition_for` does, and 0 for null.

    Java's hash of an ASCII id is a weighted sum of its bytes, so one vectorized sum gives all
    hashes. If an id is not ASCII or is long, the column's distinct ids are hashed one by one.
    """
    found = np.zeros(len(groups), np.int64)
    _, offsets, content = groups.buffers()
    if content is None or not len(groups):
        return found
    ends = np.frombuffer(offsets, np.int32)[groups.offset :][: len(groups) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if lengths.max() > _LONGEST:
        return _one_by_one(groups, num_partitions)
    text = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    if not text.size:
        return found
    if (text >= 0x80).any():
        return _one_by_one(groups, num_partitions)
    after = np.repeat(ends[1:] - ends[0], lengths) - 1 - np.arange(text.size)
    some = np.flatnonzero(lengths)
    hashes = np.add.reduceat(text * _WEIGHTS[after], ends[some] - ends[0], dtype=np.uint32)
    positive = np.abs(hashes.view(np.int32).astype(np.int64))
    # Kafka's Utils.abs, as in `partition_for`.
    positive[positive == _MIN_HASH] = 0
    found[some] = positive % num_partitions
    if groups.null_count:
        found[groups.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _one_by_one(groups: pa.StringArray, num_partitions: int) -> np.ndarray:
    each = groups.dictionary_encode()
    of_text = [partition_for(group, num_partitions) for group in each.dictionary.to_pylist()]
    places = each.indices.fill_null(len(of_text)).to_numpy()
    found: np.ndarray = np.array([*of_text, 0], np.int64)[places]
    return found
