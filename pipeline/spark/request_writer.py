"""Writers of requests: tasks write files into the table's folder, and the driver commits them.

The commit is the only step that makes requests visible, so a write is all or nothing. A task that
fails deletes its files. Then the driver deletes the files of the tasks that have ended (`abort`).
Files of tasks that were killed, or that Spark ran a second time, are in no commit message, and
VACUUM deletes them.

Spark calls `abort` also after a failed `commit`, in another process. The commit may be in the table
then, so `abort` deletes files only if a task has no commit message: in this case Spark has not
called `commit`. A commit that certainly failed deletes its files itself.

A batch of a stream is committed once. The commit moves two transaction identifiers to the batch's
number: `txnAppId`, and `txnAppId/<id of the query>`. The second one identifies the streaming
checkpoint. Without it, batch 0 of a query that lost its checkpoint after batch 0 would count as
written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import (
    ROW_GROUP_BYTES,
    DataFile,
    RetryBudget,
    TooOld,
    copy_file,
    open_store,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.spark.request_rows import RequestRows, RowIds
from group_coordinator.pipeline.tables import (
    RequestSigner,
    open_requests,
    table_uri,
    write_request_file,
)
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Appender

# The time for which the driver retries a commit, as a producer does by default, ms.
DELIVERY_TIMEOUT_MS = 120_000
# Set by Spark for each task of a micro-batch (StreamExecution, MicroBatchExecution).
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class LostCheckpoint(Failure):
    """A batch of a stream that is older than the last one written, or of another checkpoint."""


class WriteOptions(Struct, frozen=True):
    """The options of a write; `root` is absolute.

    `most` is the largest request, bytes as JSON. `txn_app_id` is set for a stream.
    """

    root: str
    prefix: str | None
    most: int
    principal: str | None = None
    key_file: str = ""
    txn_app_id: str = ""

    @property
    def uri(self) -> str:
        """The URI of the table `requests`."""
        return table_uri(self.root, REQUESTS)


class MicroBatch(NamedTuple):
    """A batch of a streaming query: the number of the batch, and the id of the query."""

    number: int
    query_id: str


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files of one task, in the order of its rows; for a stream, also its micro-batch."""

    files: tuple[DataFile, ...]
    batch: MicroBatch | None = None


_Messages = Sequence[WriterCommitMessage | None]


class RequestWriter(DataSourceArrowWriter):
    """The writer of one DataFrame: tasks run `write`, the driver's machine the other methods."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._sent_at = clock_ms()
        # Identifies the commit, so that an attempt with an unknown outcome can be repeated.
        self._app_id = f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write a task's rows to files. Raises InvalidRequest."""
        return WrittenFiles(_write_files(self._options, self._sent_at, iterator))

    def commit(self, messages: _Messages) -> None:
        """Commit the files of all tasks, in the order of the tasks."""
        files = _files_of(messages)
        if files:
            commit = FileCommit(self._options.uri, files)
            commit.run({self._app_id: 0}, lambda found: found[self._app_id] is not None)

    def abort(self, messages: _Messages) -> None:
        """Delete the files of the tasks that have ended, unless Spark has called `commit`."""
        _abort(self._options.uri, messages)


class RequestStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query's batches; the driver makes a new one for each of them."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._sent_at = clock_ms()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write a task's rows to files. Raises InvalidRequest."""
        batch = _batch_of_task()
        prefix = self._options.prefix
        if prefix is not None:
            prefix = f"{prefix}-{batch.number}"
        return WrittenFiles(_write_files(self._options, self._sent_at, iterator, prefix), batch)

    def commit(self, messages: _Messages, batchId: int) -> None:
        """Commit the files of a batch once. A batch without requests is not committed.

        Raises LostCheckpoint.
        """
        files = _files_of(messages)
        if not files:
            return
        (batch,) = {each.batch for each in messages if isinstance(each, WrittenFiles)}
        assert batch is not None
        assert batch.number == batchId
        app_id = self._options.txn_app_id
        of_query = f"{app_id}/{batch.query_id}"

        def is_written(found: Mapping[str, int | None]) -> bool:
            last = found[app_id]
            if last is None:
                return False
            if found[of_query] != last or batchId < last:
                raise LostCheckpoint(_lost(app_id, batchId, last, self._options.uri))
            return batchId == last

        commit = FileCommit(self._options.uri, files, (batch.query_id, batchId))
        commit.run({app_id: batchId, of_query: batchId}, is_written)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: ARG002
        """Delete the files of the tasks that have ended, unless Spark has called `commit`."""
        _abort(self._options.uri, messages)


class FileCommit:
    """The commit of written files to `requests`, with retries. Deletes the files if it fails."""

    def __init__(
        self, uri: str, files: Sequence[DataFile], batch: tuple[str, int] | None = None
    ) -> None:
        self._uri = uri
        self._batch = batch
        self._store = open_store(uri)
        self._files = files
        self._may_be_committed = False

    def run(
        self, to: Mapping[str, int], is_written: Callable[[Mapping[str, int | None]], bool]
    ) -> None:
        """Commit the files, and move the transaction identifiers, unless `is_written`.

        `is_written` decides by the identifiers' versions. It is asked again after each commit of
        another writer that changed one of them, and after an attempt with an unknown outcome.
        """
        retry = RetryBudget(DELIVERY_TIMEOUT_MS, "the limit of a Spark commit").run
        is_committed = False
        try:
            appender = retry("open requests", lambda: open_requests(self._uri))
            while not is_committed:
                found = retry("read requests", lambda: appender.versions([*to]))
                if is_written(found):
                    return
                moves = {name: (found[name], version) for name, version in to.items()}
                is_committed = retry("write requests", partial(self._attempt, appender, moves))
        finally:
            if not self._may_be_committed:
                self._store.delete([file.path for file in self._files])

    def _attempt(self, appender: Appender, moves: Mapping[str, tuple[int | None, int]]) -> bool:
        try:
            return appender.commit_files(self._files, moves, self._batch)
        except TooOld:
            self._files = [copy_file(self._store, file) for file in self._files]
            return appender.commit_files(self._files, moves, self._batch)
        finally:
            self._may_be_committed |= appender.may_be_committed


def _write_files(
    options: WriteOptions,
    sent_at: int,
    batches: Iterator[pa.RecordBatch],
    prefix: str | None = None,
) -> tuple[DataFile, ...]:
    """Write a task's rows to files of about `ROW_GROUP_BYTES`; delete them after an error."""
    context = TaskContext.get()
    assert context is not None
    ids = RowIds(prefix or options.prefix, context.partitionId(), sent_at)
    rows = RequestRows(ids, RequestSigner(options.principal, options.key_file), options.most)
    files: list[DataFile] = []
    waiting: list[pa.Table] = []
    try:
        for batch in batches:
            if batch.num_rows:
                waiting.append(rows.convert(batch))
            if sum(each.nbytes for each in waiting) >= ROW_GROUP_BYTES:
                files.append(write_request_file(options.uri, pa.concat_tables(waiting)))
                waiting.clear()
        if waiting:
            files.append(write_request_file(options.uri, pa.concat_tables(waiting)))
    except BaseException:
        open_store(options.uri).delete([file.path for file in files])
        raise
    return tuple(files)


def _batch_of_task() -> MicroBatch:
    context = TaskContext.get()
    assert context is not None
    number, query_id = map(context.getLocalProperty, (_BATCH_ID, _QUERY_ID))
    if number is None or query_id is None:
        raise Failure(f"Spark has not set {_BATCH_ID} and {_QUERY_ID} for a task of a stream")
    return MicroBatch(int(number), query_id)


def _files_of(messages: _Messages) -> list[DataFile]:
    return [file for each in messages if isinstance(each, WrittenFiles) for file in each.files]


def _abort(uri: str, messages: _Messages) -> None:
    if None in messages:
        open_store(uri).delete([file.path for file in _files_of(messages)])


def _lost(app_id: str, batch: int, last: int, uri: str) -> str:
    return (
        f"batch {batch} of txnAppId {app_id!r} is refused, because {uri} has batch {last} of it: "
        "the query's streaming checkpoint was lost, replaced or set back, or another query has the "
        "same txnAppId. Bring the checkpoint back; or choose another txnAppId and another "
        "requestIdPrefix: then the query writes all rows since its new checkpoint as new requests"
    )
