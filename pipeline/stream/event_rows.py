"""Rows of the stream: one for each group, or several for a group with many events.

The column `group_id` names the group, and `events` has its packed events, one a line
(`pipeline.stream.packed`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.pipeline.stream.packed import STREAM_COLUMNS

STREAM_SCHEMA = pa.schema([(name, pa.string()) for name in STREAM_COLUMNS])

# The sizes at which a row of the stream, characters, and an Arrow batch of rows, bytes, end.
_ROW_CHARS = 1 << 20
_PIECE_CHARS = 4 << 20


def stream_batches(tables: list[pa.Table]) -> list[pa.RecordBatch]:
    """Join packed events into rows, each of one group, in batches of bounded size."""
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
    """Join lines into texts; each text ends at the first line that reaches `_ROW_CHARS`."""
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
