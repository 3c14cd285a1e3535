"""Tasks of a Spark write without Spark: a writer called as Spark calls it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from group_coordinator.pipeline.delta import Position, appended, open_files
from group_coordinator.pipeline.spark.data_source import GroupCoordinatorDataSource
from group_coordinator.pipeline.spark.request_writer import (
    RequestStreamWriter,
    RequestWriter,
    WrittenFiles,
)
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS

T = TypeVar("T")
QUERY = "query-1"
COLUMNS = pa.schema(
    [
        ("request_id", pa.string()),
        ("group_id", pa.string()),
        ("api", pa.string()),
        ("api_version", pa.int32()),
        ("sent_at", pa.timestamp("us", tz="UTC")),
        ("body", pa.string()),
        ("heartbeat", pa.struct([("member_id", pa.string()), ("generation_id", pa.int32())])),
    ]
)
SCHEMA = (
    StructType()
    .add("request_id", "string")
    .add("group_id", "string")
    .add("api", "string")
    .add("api_version", "integer")
    .add("sent_at", "timestamp")
    .add("body", "string")
    .add("heartbeat", StructType().add("member_id", "string").add("generation_id", "integer"))
)


def data_source(root: str, options: Mapping[str, str]) -> GroupCoordinatorDataSource:
    return GroupCoordinatorDataSource(CaseInsensitiveDict({"root": root, **options}))


def batch_writer(root: str, **options: str) -> RequestWriter:
    return shipped(data_source(root, options).writer(SCHEMA, overwrite=False))


def stream_writer(root: str, **options: str) -> RequestStreamWriter:
    source = data_source(root, {"txnAppId": "job", **options})
    return shipped(source.streamWriter(SCHEMA, overwrite=False))


def shipped(thing: T) -> T:
    """Return a copy as another process gets it."""
    copy: T = pickle.loads(pickle.dumps(thing))
    return copy


@contextmanager
def task(partition: int, batch: int | None = None, query: str = QUERY) -> Iterator[None]:
    """Run the block as a task, of a micro-batch if it has a number."""
    properties = {} if batch is None else _properties(batch, query)
    context = SimpleNamespace(
        partitionId=lambda: partition, getLocalProperty=lambda name: properties.get(name)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskContext, "get", classmethod(lambda _cls: context))
        yield


def _properties(batch: int, query: str) -> dict[str, str]:
    return {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}


def written(
    writer: RequestWriter | RequestStreamWriter,
    *tasks: Sequence[Mapping[str, Any]],
    batch: int | None = None,
    query: str = QUERY,
) -> list[WrittenFiles | None]:
    """Return the commit messages of tasks with these rows, one Arrow batch for each task."""
    messages: list[WrittenFiles | None] = []
    for partition, rows in enumerate(tasks):
        with task(partition, batch, query):
            messages.append(shipped(writer.write(iter([arrow(rows)]))))
    return messages


def arrow(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=COLUMNS)


def fetch(request_id: str | None, group_id: str | None = "g", **columns: Any) -> dict[str, Any]:
    """Return a row that reads the offsets of a group."""
    row = {"request_id": request_id, "group_id": group_id, "api": "offset_fetch", "body": "{}"}
    return row | columns


def stored(root: str) -> list[dict[str, Any]]:
    """Return the rows of `requests` without nulls, in the order in which a coordinator reads them.

    The first commit is the one that created the table.
    """
    files = open_files(table_uri(root, REQUESTS))
    pages = appended(files, Position(1), REQUESTS.schema.names)
    rows = [row for page, _ in pages if page is not None for row in page.to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def ids(root: str) -> list[str]:
    return [row["request_id"] for row in stored(root)]


def files(root: str) -> int:
    """Return the number of Parquet files in the folder of `requests`."""
    return len(list((Path(root) / "requests").glob("*.parquet")))


def commits(root: str) -> int:
    """Return the number of commits to `requests` since it was created."""
    return DeltaTable(table_uri(root, REQUESTS)).version()
