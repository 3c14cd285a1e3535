"""Rows for SQL: since when a user's table has rows that are not in its topic index.

A gateway, member or worker that reads such a topic updates the index. Without a reader the end
offsets stay the same while the table grows. A lag computed from them would then be too small, and
nothing would show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import LogGone, is_table
from group_coordinator.pipeline.delta.log import open_log
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Ask

# The columns of the rows, in DuckDB's types; `since` in ms.
COLUMNS = {"topic": "VARCHAR", "since": "BIGINT"}
_INDEXED = """
SELECT
    topics.topic,
    any_value(topics."table"),
    coalesce(max(topic_index.version), -1),
    coalesce(max(topic_index.committed_at), 0)
FROM topics LEFT JOIN topic_index ON topic_index.topic_id = topics.topic_id
WHERE topics."table" IS NOT NULL AND topics.config IS NULL
GROUP BY topics.topic
"""


def read_unindexed(ask: Ask) -> list[tuple[str, int]]:
    """Return each topic with the time, ms, of the first commit of rows that are not indexed.

    `ask` runs a DuckDB query over the root's tables. If a table cannot be read, the time of its
    last indexed commit is returned, because rows may have been added since then.
    """
    found = []
    for topic, uri, version, indexed_at in ask(_INDEXED):
        try:
            since = _first_new_rows(uri, version)
        except (OSError, LogGone, Failure):
            since = indexed_at
        if since is not None:
            found.append((topic, since))
    return found


def _first_new_rows(uri: str, version: int) -> int | None:
    """Return the time of the first commit after a version that adds rows; None if there is none."""
    if not is_table(uri):
        raise FileNotFoundError(f"{uri} has no log")
    log = open_log(uri)
    while (actions := log.next_commit(version)) is not None:
        # OPTIMIZE adds files, but no rows.
        if any(each.add is not None and each.add.data_change for each in actions):
            infos = [each.commit_info for each in actions if isinstance(each.commit_info, dict)]
            times = [info.get("timestamp") for info in infos]
            return max((each for each in times if isinstance(each, int)), default=0)
        version += 1
    return None
