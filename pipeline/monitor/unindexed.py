"""Since when a user's table has rows that its topic's index does not know, as rows for SQL.

Whoever reads such a topic indexes it: a gateway, a member, a worker. Where nobody does, the topic's
ends stand still while its table grows, and a lag computed by them would be too small without
telling so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.log import LogGone, is_table, open_log
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.plain_table import Ask

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

    `ask` runs a query of DuckDB's over the root's tables. Of a table that cannot be looked at it is
    not known whether it has such rows: it may have had them since the last ones that are indexed.
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
    """When the first commit after a version that has new rows was made; None without one."""
    if not is_table(uri):
        raise FileNotFoundError(f"{uri} has no log")
    log = open_log(uri)
    while (actions := log.next_commit(version)) is not None:
        # OPTIMIZE adds files as well, and no rows.
        if any(each.add is not None and each.add.data_change for each in actions):
            infos = [each.commit_info for each in actions if isinstance(each.commit_info, dict)]
            times = [info.get("timestamp") for info in infos]
            return max((each for each in times if isinstance(each, int)), default=0)
        version += 1
    return None
