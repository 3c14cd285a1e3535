"""The requests that a bootstrap must bring again: those that nobody answered; written by DuckDB.

What comes out means what `pipeline.stream.source.pack` would have made of the same rows.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.data_files import data_files
from pipeline.delta.engine import Engine, quoted
from pipeline.delta.table_files import TableFiles
from pipeline.node.load_events import as_data_file, as_json, open_engine, write_events
from pipeline.stream.source import KEY_WIDTH, NO_TIME, PACKED_SCHEMA
from pipeline.tables.store import open_table
from schemas.tables import REJECTED_REQUESTS, REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltalake import DeltaTable

    from pipeline.delta.data_files import DataFile

# A request may hold a megabyte of assignments.
_PAGE_ROWS = 500
# Nobody can be answered: such a request is rejected.
_NOBODY = "(request_id IS NULL OR group_id IS NULL)"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def write_waiting_requests(
    root: str,
    requests: DeltaTable,
    target_folder: Path,
    wanted: Callable[[str | None], bool] = lambda _group_id: True,
) -> list[DataFile]:
    """Write the requests of the handle's version that nobody answered or rejected, packed.

    `wanted` says of which groups; None stands for an event that names none.

    Returns the files, which are not yet part of a table. Raises Failure with what DuckDB says, also
    for requests whose strings are not UTF-8.
    """
    files = data_files(requests)
    if not files:
        return []
    with open_engine() as engine:
        engine.show("requests", TableFiles(requests, engine.scratch), files)
        for table in (RESPONSES, REJECTED_REQUESTS):
            handle = open_table(root, table)
            engine.show(table.name, TableFiles(handle, engine.scratch), data_files(handle))
        answered = "SELECT 1 FROM responses WHERE responses.request_id = requests.request_id"
        unanswered = f"NOT {_NOBODY} AND NOT EXISTS ({answered})"
        waiting = _write(engine, unanswered, target_folder, wanted)
        broken = _write(engine, _NOBODY, engine.scratch, wanted)
        if broken is not None:
            path = quoted(str(engine.scratch / broken.path))
            broken = write_events(engine, _not_rejected(path), target_folder)
        return [file for file in (waiting, broken) if file is not None]


def _write(
    engine: Engine, condition: str, folder: Path, wanted: Callable[[str | None], bool]
) -> DataFile | None:
    """Pack the requests of which a condition holds into a file; None if there are none."""
    fields = as_json(pa.struct(list(REQUESTS.schema)))
    engine.run(
        f"""
        CREATE OR REPLACE TEMP TABLE chosen AS
        SELECT group_id,
            CASE WHEN sent_at IS NULL THEN '{NO_TIME}'
                ELSE lpad(greatest(epoch_us(sent_at), 0)::VARCHAR, {KEY_WIDTH}, '0') END AS key,
            to_json({fields})::VARCHAR AS fields
        FROM requests WHERE {condition}
        """
    )
    ((count,),) = engine.run("SELECT count(*) FROM chosen")
    if not count:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"part-{uuid.uuid4()}.zstd.parquet"
    written = 0
    with pq.ParquetWriter(target, PACKED_SCHEMA, compression="zstd") as writer:
        for rows in _pages(engine, count):
            chosen = [row for row in rows if wanted(row[0])]
            written += len(chosen)
            groups = [group_id for group_id, _, _ in chosen]
            events = [key + _without_nulls(fields) for _, key, fields in chosen]
            writer.write_table(pa.table([groups, events], schema=PACKED_SCHEMA))
    if not written:
        target.unlink()
        return None
    return as_data_file(target, written)


def _pages(engine: Engine, count: int) -> Iterator[list[tuple[Any, ...]]]:
    for first in range(0, count, _PAGE_ROWS):
        yield engine.run(
            f"SELECT * FROM chosen WHERE rowid >= {first} AND rowid < {first + _PAGE_ROWS}"
        )


def _not_rejected(path: str) -> str:
    """SQL for the events of a file that were not rejected.

    Two engines write the same JSON with other escapes: it is compared as a third one writes it.
    """
    return f"""
        SELECT * FROM read_parquet({path}) AS broken WHERE NOT EXISTS (
            SELECT 1 FROM rejected_requests AS rejected
            WHERE json_extract(substring(broken.event, {KEY_WIDTH + 1}), '$')
                = CASE WHEN json_valid(rejected.event) THEN json_extract(rejected.event, '$') END
        )
    """


def _without_nulls(text: str) -> str:
    """A JSON object without the fields that are null, in it and in the objects it holds."""
    return _encode(_pruned(_decode(text))).decode()


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pruned(one) for name, one in value.items() if one is not None}
    return [_pruned(one) for one in value] if isinstance(value, list) else value
