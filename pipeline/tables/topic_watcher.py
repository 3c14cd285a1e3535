"""A follower of the catalogue of topics."""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.delta import Followed
from group_coordinator.pipeline.tables.store import Absent, table_uri
from group_coordinator.pipeline.tables.topics import counts_of, creations_of, newest_of
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.rows import TopicChange
from group_coordinator.schemas.tables import TOPICS, from_arrow

# How many of the newest deletions a coordinator gets. A group misses a deletion only if the
# coordinator decides no request of the group before MOST_DELETED later deletions. So
# `pipeline.admin.changes` sends a request to each group with offsets of the deleted topic.
MOST_DELETED = 1000


class _KnownTopics(Struct, frozen=True):
    """The catalogue after the changes that were read; `created` and `deleted` are times (ms)."""

    newest: dict[str, TopicChange]
    created: dict[str, int]
    deleted: dict[str, int]


class TopicWatcher:
    """A follower of the catalogue of a root; not thread-safe.

    A poll is one attempt to open the catalogue's next commit. While the catalogue does not exist, a
    poll is one test whether its log exists.
    """

    def __init__(self, root: str) -> None:
        is_there = Absent(root, TOPICS).is_there
        self._table = Followed(table_uri(root, TOPICS), TOPICS.schema.names, _take, is_there)
        # The number of polls that have read rows of the catalogue.
        self.changes = 0

    @property
    def created(self) -> dict[str, int]:
        """The `at` (ms) of the row that created each topic, as of the last `poll`."""
        known = self._table.known
        return {} if known is None else known.created

    @property
    def counts(self) -> dict[str, int] | None:
        """Each topic's number of partitions as of the last `poll`; None without a catalogue."""
        known = self._table.known
        return None if known is None else counts_of(known.newest)

    @property
    def catalogue(self) -> Catalogue | None:
        """The topics and the newest MOST_DELETED deletions, as of the last `poll`.

        None without a catalogue.
        """
        known = self._table.known
        return None if known is None else Catalogue(counts_of(known.newest), known.deleted)

    def poll(self) -> dict[str, int] | None:
        """Return each topic's number of partitions if one changed since the last call, else None.

        The first call that finds a catalogue returns all its topics. Raises the errors of reading
        the table; after an error, the catalogue is unchanged.
        """
        known = self._table.known
        if not self._table.poll():
            return None
        self.changes += 1
        before, now = None if known is None else counts_of(known.newest), self.counts
        return now if now != before else None


def _take(known: _KnownTopics | None, rows: pa.Table, _is_whole: bool) -> _KnownTopics:
    changes = from_arrow(TopicChange, rows)
    before = _KnownTopics({}, {}, {}) if known is None else known
    deleted = dict(before.deleted)
    for change in changes:
        if change.partitions is None:
            deleted[change.topic] = max(change.at, deleted.get(change.topic, 0))
    newest = sorted(deleted, key=deleted.__getitem__)[-MOST_DELETED:]
    return _KnownTopics(
        newest_of([*before.newest.values(), *changes]),
        creations_of(changes, before.created),
        {topic: deleted[topic] for topic in newest},
    )
