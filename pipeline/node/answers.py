"""The answered requests, read from `responses`; each data file is read once.

The answers show which requests still wait (`pipeline.node.waiting_requests`), and which requests
the groups must remember (`pipeline.node.remembered`). Any answer counts for the first question. For
the second only recent answers count, by clocks that may differ by MOST_BEHIND_MS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.log_time import MOST_BEHIND_MS
from group_coordinator.pipeline.delta import (
    AT_ONCE,
    data_files,
    local_folder,
    modified_within,
    quoted,
)
from group_coordinator.pipeline.node.shown_table import ShownTable
from group_coordinator.pipeline.node.table_scan import TableScan
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.tables import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta import DataFile, Engine

_EARLY = pa.schema([RESPONSES.schema.field("request_id")])
_LATE = pa.schema(
    [RESPONSES.schema.field(name) for name in ("request_id", "group_id", "api", "responded_at")]
)
# The APIs that are not safe to repeat. Deciding a request of another API twice undoes nothing.
_DECIDING = ", ".join(quoted(api.name) for api in DECIDED.values() if not api.is_repeatable)
_TO_ANSWERED = "INSERT INTO answered SELECT request_id FROM fetched"
_TO_LATELY = (
    "INSERT INTO lately SELECT request_id, group_id, epoch_ms(responded_at) FROM fetched "
    f"WHERE api IN ({_DECIDING}) AND request_id IS NOT NULL AND group_id IS NOT NULL "
    "AND responded_at IS NOT NULL"
)
_TO_NEWEST = (
    "INSERT INTO newest SELECT group_id, epoch_ms(max(responded_at)) FROM fetched "
    "WHERE group_id IS NOT NULL AND responded_at IS NOT NULL GROUP BY group_id"
)


class Answers:
    """The answers that were read so far, in three temporary tables of the engine.

    * `answered` (`request_id`): the requests with any answer.
    * `lately` (`id`, `group_id`, `at_ms`): the requests of APIs that are not safe to repeat, in
      recent files.
    * `newest` (`group_id`, `at_ms`): the time of a group's last answer in recent files. A group may
      have one row for each `read_on`.

    A file is recent if it was written at most two windows of `window_ms` plus MOST_BEHIND_MS before
    it was read. Up to `at_once` files of an object store are requested in parallel.
    """

    def __init__(self, engine: Engine, window_ms: int, at_once: int = AT_ONCE) -> None:
        self._engine = engine
        self._at_once = at_once
        self._lately_ms = 2 * window_ms + MOST_BEHIND_MS
        # The paths of the files that were read.
        self._read: set[str] = set()
        engine.run("CREATE TEMP TABLE answered (request_id VARCHAR)")
        engine.run("CREATE TEMP TABLE lately (id VARCHAR, group_id VARCHAR, at_ms BIGINT)")
        engine.run("CREATE TEMP TABLE newest (group_id VARCHAR, at_ms BIGINT)")

    def read_on(self, responses: DeltaTable, now_ms: int) -> None:
        """Read the files that were not read yet. Raises Failure with DuckDB's message.

        The answers of a file that was rewritten since the last call are read again.
        """
        files = data_files(responses)
        late = {file.path for file in modified_within(files, self._lately_ms, now_ms)}
        unread = [file for file in files if file.path not in self._read]
        earlier = [file for file in unread if file.path not in late]
        later = [file for file in unread if file.path in late]
        if earlier:
            self._fetch(responses, earlier, _EARLY)
            self._engine.run(_TO_ANSWERED)
        if later:
            self._fetch(responses, later, _LATE)
            self._engine.run(_TO_ANSWERED)
            self._engine.run(_TO_LATELY)
            self._engine.run(_TO_NEWEST)
        if unread:
            self._engine.run("DROP TABLE fetched")
        self._read.update(file.path for file in unread)

    def _fetch(self, responses: DeltaTable, files: Sequence[DataFile], schema: pa.Schema) -> None:
        """Make the engine's table `fetched` contain these columns of the files."""
        if local_folder(responses.table_uri) is None:
            # DuckDB would need local copies of whole files; pyarrow fetches only these columns.
            scan = TableScan(responses, only=files, at_once=self._at_once)
            pages = scan.pages(schema.names)
            batches = (each for _, _, rows in pages for each in rows.cast(schema).to_batches())
            self._engine.store("fetched", pa.RecordBatchReader.from_batches(schema, batches))
        else:
            shown = ShownTable(self._engine, responses, "answers", files)
            names = ", ".join(schema.names)
            sql = f"CREATE OR REPLACE TEMP TABLE fetched AS SELECT {names} FROM answers"
            shown.run(lambda: self._engine.run(sql))
