"""Since when a user's table has rows that its topic's index does not know, as rows for SQL.

Whoever reads such a topic indexes it: a gateway, a member, a worker. Where nobody does, the topic's
ends stand still while its table grows, and a lag computed by them would be too small without
telling so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.delta.table import local_folder, log_names

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class _Added(Struct, rename="camel"):
    data_change: bool = True


class _Action(Struct, rename="camel"):
    add: _Added | None = None
    commit_info: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Action).decode


def read_unindexed(ask: Ask) -> list[tuple[str, int]]:
    """Return each topic with the time, ms, of the first commit of rows that are not indexed.

    `ask` runs a query of DuckDB's over the root's tables. Of a table that cannot be looked at it is
    not known whether it has such rows: it may have had them since the last ones that are indexed.
    """
    found = []
    for topic, uri, version, indexed_at in ask(_INDEXED):
        try:
            since = _first_new_rows(uri, version)
        except (OSError, msgspec.MsgspecError):
            since = indexed_at
        if since is not None:
            found.append((topic, since))
    return found


def _first_new_rows(uri: str, version: int) -> int | None:
    """When the first commit after a version that has new rows was made; None without one."""
    for content in _commits_after(uri, version):
        actions = [_decode(line) for line in content.splitlines() if line]
        # OPTIMIZE adds files as well, and no rows.
        if any(each.add is not None and each.add.data_change for each in actions):
            times = [(each.commit_info or {}).get("timestamp") for each in actions]
            return max((each for each in times if isinstance(each, int)), default=0)
    return None


def _commits_after(uri: str, version: int) -> Iterator[bytes]:
    """The commits after a version that the log still has, in order."""
    folder = local_folder(uri)
    if folder is None:
        # Imported for a table elsewhere: it needs Arrow and a store's client.
        from group_coordinator.pipeline.delta.commit_reader import open_files, read_commit

        files = open_files(uri)
        while (content := read_commit(files, version + 1)) is not None:
            yield content
            version += 1
        return
    names = sorted(log_names(folder))
    if not names:
        raise FileNotFoundError(f"{folder} has no log")
    # Each begins with its version; beside commits there are Delta checkpoints.
    later = (name for name in names if name[20:] == ".json" and int(name[:20]) > version)
    yield from ((folder / "_delta_log" / name).read_bytes() for name in later)
