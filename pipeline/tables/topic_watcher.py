"""Following the catalogue of topics as it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.tail import follow
from group_coordinator.pipeline.tables.store import Absent, table_uri
from group_coordinator.pipeline.tables.topics import (
    counts_of,
    creations_of,
    newest_of,
    read_changes,
)
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.rows import TopicChange
from group_coordinator.schemas.tables import TOPICS, from_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.tail import Tail


# How many deletions a coordinator is told of. A group misses a deletion only if it is not decided
# again before so many others; `pipeline.admin.changes` has every group of a deleted topic decided.
MOST_DELETED = 1000


class TopicWatcher:
    """The catalogue of a root as it changes; not for two threads at once.

    A look is one attempt to open the catalogue's next commit; while there is no catalogue, one test
    whether its log exists.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._absent = Absent(root, TOPICS)
        self._tail: Tail | None = None
        self._newest: dict[str, TopicChange] = {}
        self._deleted: dict[str, int] = {}
        self._created: dict[str, int] = {}
        # How often rows of the catalogue were read.
        self.changes = 0

    @property
    def created(self) -> dict[str, int]:
        """The `at` of the row that created each topic, as of the last `poll`."""
        return self._created

    @property
    def counts(self) -> dict[str, int] | None:
        """Each topic's number of partitions as of the last `poll`; None without a catalogue."""
        return None if self._tail is None else counts_of(self._newest)

    @property
    def catalogue(self) -> Catalogue | None:
        """The topics, and the last MOST_DELETED deletions, as of the last `poll`."""
        counts = self.counts
        return None if counts is None else Catalogue(counts, self._deleted)

    def poll(self) -> dict[str, int] | None:
        """Return each topic's number of partitions if that changed since the last call, else None.

        The first call that finds a catalogue returns all its topics.
        """
        before = self.counts
        if self._tail is None:
            if not self._absent.is_there():
                return None
            self._read()
        else:
            self._follow(self._tail)
        now = self.counts
        return now if now != before else None

    def _read(self) -> None:
        # The tail begins before the rows are read: a change that is committed between the two is
        # read twice instead of being missed.
        self._tail = follow(table_uri(self._root, TOPICS), TOPICS.schema.names)
        self._take(read_changes(self._root))

    def _follow(self, tail: Tail) -> None:
        try:
            rows = tail.poll()
        except LogGone:
            self._read()
            return
        if rows is not None:
            self._take(from_arrow(TopicChange, rows))

    def _take(self, changes: list[TopicChange]) -> None:
        self.changes += 1
        self._newest = newest_of([*self._newest.values(), *changes])
        self._created = creations_of(changes, self._created)
        deleted = dict(self._deleted)
        for change in changes:
            if change.partitions is None:
                deleted[change.topic] = max(change.at, deleted.get(change.topic, 0))
        newest = sorted(deleted, key=deleted.__getitem__)[-MOST_DELETED:]
        self._deleted = {topic: deleted[topic] for topic in newest}
