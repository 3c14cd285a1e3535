"""Reading of `requests` within bounded memory, whatever a writer has put there.

Any client may write to the table, and one row must not stop the requests of others. So the memory
of a row group is computed from its Parquet footer before it is read:

* If its columns take more than `UNREADABLE_BYTES`, only the ids are read, and all its requests are
  refused.
* Otherwise it is read in pages of about `PAGE_BYTES`. If its texts could exceed `UNFOLDED_BYTES`,
  because a short file repeats a long text, they are read as dictionaries, and measured before they
  are copied.
* A request of more than `max.request.size` becomes a refused row: its ids, and the reason in the
  column `REFUSED`. The group answers it INVALID_REQUEST, or rejects it if its ids are missing or
  too long (`schemas.messages.decode_request`).
* A file that is no Parquet file, or understates its pages in the footer, becomes one refused row
  without ids: a rejected request that names the file.
* A row group that cannot be decoded becomes a refused row for each request, with the ids that can
  be decoded. `pipeline.delta.parquet_file` handles failures of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from group_coordinator.coordinator.group.control import is_control
from group_coordinator.pipeline.delta import RowGroups, why_undecodable
from group_coordinator.pipeline.quoting import quoted_text
from group_coordinator.pipeline.stream.contract_types import in_contract_types, texts
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, PACKED_SCHEMA, pack_rows
from group_coordinator.schemas.decoding import REFUSED, decode_request

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger(__name__)

# The size of a page, bytes, in Arrow as well as packed.
PAGE_BYTES = 8 << 20
# The most that the encoded columns of a row group and the items of its lists may take, bytes.
UNREADABLE_BYTES = 1 << 30
# The most that the texts of a row group may take if each is as long as its whole column, bytes.
UNFOLDED_BYTES = 256 << 20
# The longest id with which a refused request is answered: Kafka's longest string, bytes.
LONGEST_ID = 32_767
_IDS = ("request_id", "group_id", "api")
# The memory that Arrow takes for a value: up to eight bytes or an offset, and its validity.
_VALUE_BYTES = 9
# The most that an event's fields other than lists take without their texts, bytes; and how many
# times larger than encoded a text or list item can be (JSON writes a control character as six
# bytes).
_FIXED_BYTES = 4096
_MOST_GROWTH = 8


class _Weight(NamedTuple):
    """Memory of row groups, computed from their footer, bytes."""

    encoded: int  # its encoded columns, and the items of its lists
    unfolded: int  # its texts, if each were as long as all of its encoded column


def read_pages(
    groups: RowGroups, columns: Sequence[str], first: int, most: int
) -> Iterator[pa.Table]:
    """Yield the rows of row groups from row `first` on, page by page, in order.

    `most` is `max.request.size`, bytes. A page has those of `columns` that the file has, or only
    ids and `REFUSED`.
    """
    file, parquet, numbers = groups
    described = [parquet.metadata.row_group(number) for number in numbers]
    weight = _weigh(described)
    if weight.encoded > UNREADABLE_BYTES:
        reason = f"its row group takes {weight.encoded} bytes, more than {UNREADABLE_BYTES}"
        yield from _ids_alone(parquet, numbers, first, f"the request was not read: {reason}")
        return
    count = sum(group.num_rows for group in described)
    size = weight.encoded + count * parquet.metadata.num_columns * _VALUE_BYTES
    if weight.unfolded > UNFOLDED_BYTES:
        strings = [each for each in _columns(described[0]) if each.physical_type == "BYTE_ARRAY"]
        named = [column.path_in_schema for column in strings]
        parquet = pq.ParquetFile(file, read_dictionary=named, metadata=parquet.metadata)
    elif size <= PAGE_BYTES and weight.encoded * _MOST_GROWTH + _FIXED_BYTES <= most:
        # As in nearly all files, no event can be large. Threads cost a small file more than they
        # save.
        yield parquet.read_row_groups(numbers, list(columns), use_threads=False).slice(first)
        return
    rows = max(1, count * PAGE_BYTES // max(size, 1))
    for table in _from(parquet.iter_batches(rows, numbers, list(columns)), first):
        yield from bounded(table, most)


def bounded(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield rows in pages of at most `PAGE_BYTES`, or of one row.

    An event of more than `most` bytes becomes a refused row.
    """
    sizes = event_sizes(rows).to_pylist()
    start = size = 0
    for row, each in enumerate(sizes):
        if row > start and (each > most or size + each > PAGE_BYTES):
            yield rows.slice(start, row - start)
            start, size = row, 0
        if each > most:
            yield _refused(rows.slice(row, 1), _too_large(each, most))
            start = row + 1
        else:
            size += each
    if start < rows.num_rows:
        yield rows.slice(start)


def refuse_packed(events: pa.Table, most: int) -> pa.Table:
    """Refuse the requests in a bootstrap's packed events that are larger than `most` bytes.

    A control event may have any size.
    """
    lengths = pc.binary_length(events.column("event"))
    if not events.num_rows or pc.max(lengths).as_py() <= most + KEY_WIDTH:
        return events
    rows = [
        _refuse_packed(group, text, most) if size > most + KEY_WIDTH else (group, text)
        for group, text, size in zip(
            *(column.to_pylist() for column in events.columns), lengths.to_pylist(), strict=True
        )
    ]
    return pa.Table.from_arrays(
        [pa.array(each, pa.string()) for each in zip(*rows, strict=True)], schema=PACKED_SCHEMA
    )


def _refuse_packed(group: str | None, text: str, most: int) -> tuple[str | None, str]:
    key, event = text[:KEY_WIDTH], text[KEY_WIDTH:]
    if is_control(event):
        return group, text
    said = decode_request(event)
    ids = {"request_id": [said.request_id], "group_id": [group], "api": [said.api]}
    refused = _refused(pa.table(ids), _too_large(len(event.encode()), most))
    (row,) = pack_rows(refused, 0).to_pylist()
    return row["group_id"], key + row["event"][KEY_WIDTH:]


class RefusedRequests:
    """Refused rows in place of requests that cannot be decoded; the reason is logged."""

    def for_file(self, path: str, why: str) -> pa.Table:
        """Return a refused row without ids, for a file that is no Parquet file."""
        path = quoted_text(path)
        log.warning("requests: %s is no Parquet file: %s", path, quoted_text(why))
        reason = f"{path} is no Parquet file, so that its requests cannot be read"
        return _refused(pa.table({"request_id": pa.nulls(1)}), reason)

    def for_row_group(
        self, files: FileSystem, path: str, row_group: int, first: int, why: str
    ) -> pa.Table:
        """Return the requests of a damaged row group, from row `first` on, as refused.

        They have the ids that can be decoded.
        """
        told = quoted_text(path), quoted_text(why)
        log.warning("requests: row group %d of %s cannot be decoded: %s", row_group, *told)
        reason = f"row group {row_group} of {quoted_text(path)} cannot be decoded"
        ids = [name for name in _IDS if why_undecodable(files, path, row_group, [name]) is None]
        with files.open_input_file(path) as file:
            found = _ids_alone(pq.ParquetFile(file), [row_group], first, reason, ids)
            return pa.concat_tables(found)


def _too_large(size: int, most: int) -> str:
    return f"the request takes {size} bytes, more than max.request.size, which is {most}"


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(index) for index in range(group.num_columns)]


def _weigh(groups: Sequence[pq.RowGroupMetaData]) -> _Weight:
    encoded = unfolded = 0
    for group in groups:
        for column in _columns(group):
            values, size = column.num_values, column.total_uncompressed_size
            encoded += size + max(values - group.num_rows, 0) * _VALUE_BYTES
            if column.physical_type == "BYTE_ARRAY":
                unfolded += values * size
    return _Weight(encoded, unfolded)


def _from(batches: Iterator[pa.RecordBatch], first: int) -> Iterator[pa.Table]:
    for batch in batches:
        if first < batch.num_rows:
            yield pa.Table.from_batches([batch.slice(first)])
        first = max(0, first - batch.num_rows)


def _ids_alone(
    parquet: pq.ParquetFile,
    numbers: Sequence[int],
    first: int,
    reason: str,
    names: Sequence[str] = _IDS,
) -> Iterator[pa.Table]:
    """Yield the requests of row groups as refused, with those of the ids `names` that are small."""
    groups = [parquet.metadata.row_group(number) for number in numbers]
    large = {
        column.path_in_schema
        for group in groups
        for column in _columns(group)
        if column.total_uncompressed_size > PAGE_BYTES
    }
    found = [column.path_in_schema for column in _columns(groups[0])]
    small = [name for name in found if name in names and name not in large]
    if not small:
        count = sum(group.num_rows for group in groups)
        yield _refused(pa.table({"request_id": pa.nulls(count - first)}), reason)
        return
    for table in _from(parquet.iter_batches(65_536, numbers, small), first):
        yield _refused(table, reason)


def _refused(rows: pa.Table, reason: str) -> pa.Table:
    """Return the ids of the rows, null if too long, with the reason in the column `REFUSED`."""
    columns = in_contract_types(rows.select([name for name in _IDS if name in rows.column_names]))
    found = {name: texts(columns, name, rows.num_rows) for name in _IDS}
    for name, ids in found.items():
        found[name] = pc.if_else(pc.less_equal(pc.binary_length(ids), LONGEST_ID), ids, None)
    return pa.table({**found, REFUSED: pa.repeat(reason, rows.num_rows)})


_MICROS = pa.timestamp("us", tz="UTC")
_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
# The size of a null in a list, and the approximate size of a value of a type outside the contract.
_NULL = pa.scalar(len("null"), pa.int64())
_OTHER_TYPE = pa.scalar(100, pa.int64())
# How many bytes JSON adds for each byte of a text.
_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[:0x20] = 5
_ESCAPES[list(b'"\\\b\f\n\r\t')] = 1


def event_sizes(rows: pa.Table) -> pa.Array:
    """Return the length in bytes of each row's event as JSON (`pipeline.stream.packed_events`).

    JSON writes a control character as six bytes, so a value of 17 MB may become an event of 102 MB.
    The length is approximate for texts that are not UTF-8, and for types that `requests` does not
    have.
    """
    columns = [column.combine_chunks() for column in rows.columns]
    return _object_sizes(rows.column_names, columns, rows.num_rows)


def _object_sizes(names: Sequence[str], fields: Sequence[pa.Array], length: int) -> pa.Array:
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    members = total
    for name, array in zip(names, fields, strict=True):
        if array.null_count < length:
            present = array.is_valid().cast(pa.int64())
            quoted = pc.multiply(present, len(name) + 3)  # "name":
            total = pc.add(total, pc.add(quoted, pc.coalesce(_sizes(array), 0)))
            members = pc.add(members, present)
    commas = pc.max_element_wise(pc.subtract(members, 1), 0)
    return pc.add(pc.add(total, commas), 2)


def _sizes(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _sizes(array.dictionary).take(array.indices)
    if any(is_kind(kind) for is_kind in _STRINGS):
        return _string_sizes(array)
    if any(is_kind(kind) for is_kind in _BINARIES):
        lengths = pc.binary_length(array.cast(pa.large_binary()))
        return pc.add(pc.multiply(pc.divide(pc.add(lengths, 2), 3), 4), 2)
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        sizes = _object_sizes(names, array.flatten(), len(array))
        return pc.if_else(array.is_valid(), sizes, None)
    if any(is_kind(kind) for is_kind in _LISTS):
        return _list_sizes(array)
    if pa.types.is_timestamp(kind):
        # JSON has milliseconds, which have three digits fewer than microseconds.
        digits = pc.binary_length(
            array.cast(_MICROS, safe=False).cast(pa.int64()).cast(pa.string())
        )
        return pc.max_element_wise(pc.subtract(digits.cast(pa.int64()), 3), 1, skip_nulls=False)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.binary_length(array.cast(pa.string())).cast(pa.int64())
    # Another type than the schema's: the event has the type's name instead of the value.
    return pc.if_else(array.is_valid(), _OTHER_TYPE, None)


def _string_sizes(array: pa.Array) -> pa.Array:
    lengths = pc.binary_length(array.cast(pa.large_binary()))
    return pc.add(pc.add(lengths, pa.array(_escapes(array))), 2)


def _escapes(array: pa.Array) -> np.ndarray:
    """Return how many bytes the escapes of each text add; 0 for null."""
    texts = pc.coalesce(array.cast(pa.large_binary()), b"")
    _, offsets, content = texts.buffers()
    found = np.zeros(len(texts), np.int64)
    if content is None or not len(texts):
        return found
    ends = np.frombuffer(offsets, np.int64)[texts.offset :][: len(texts) + 1]
    more = _ESCAPES[np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]]
    if more.any():
        some = np.flatnonzero(np.diff(ends))
        found[some] = np.add.reduceat(more, ends[some] - ends[0], dtype=np.int64)
    return found


def _list_sizes(array: pa.Array) -> pa.Array:
    sizes = pc.coalesce(_sizes(array.flatten()), _NULL)
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes.cast(pa.int64()))])
    lengths = pc.list_value_length(array).cast(pa.int64())
    ends = pc.cumulative_sum(pc.coalesce(lengths, 0))
    starts = pc.subtract(ends, pc.coalesce(lengths, 0))
    items = pc.subtract(sums.take(ends), sums.take(starts))
    commas = pc.max_element_wise(pc.subtract(lengths, 1), 0, skip_nulls=False)
    return pc.add(pc.add(items, commas), 2)
