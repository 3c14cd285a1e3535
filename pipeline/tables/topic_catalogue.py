"""The catalogue of topics: the topics that exist, with their numbers of partitions.

It is an append-only Delta table, `topics`. A topic's newest row is in force; a row without
partitions deletes the topic. The first `create_topic` creates the table. Without a catalogue every
topic name is accepted; with one, a commit to an unknown topic or partition is refused.

Changes are serialized: each is the next version of one transaction identifier. If another change
takes the version first, this one is decided again.

`prepare` is called after each read of the catalogue and before the commit. Its argument is the `at`
(ms) of the row that creates, or created, the topic. For a row that creates the topic it may return
a later `at`. It raises to cancel the change, for example because the request has timed out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import Appender, TableFollower
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import (
    Absent,
    TableMissing,
    ensure_table,
    has_table,
    read_table,
    table_uri,
)
from group_coordinator.schemas.rows import Catalogue, TopicChange
from group_coordinator.schemas.tables import TOPIC_TABLES, TOPICS, from_arrow, to_arrow

CATALOGUE_APP_ID = "topics-catalogue"
LONGEST_NAME = 249
MOST_PARTITIONS = 2**31 - 1
# The number of newest deletions that a coordinator gets. A group misses a deletion only if no
# request of it is decided before MOST_DELETED later deletions. So `pipeline.admin.changes` sends a
# request to each group with offsets of the deleted topic.
MOST_DELETED = 1000
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

# Returns a topic's new number of partitions (None: delete it), given the newest row of every topic.
# Raises Failure to cancel the change.
_Decide = Callable[[dict[str, TopicChange]], int | None]


class InvalidTopic(Failure):
    """A topic name that Kafka does not accept; the message gives the reason."""


class InvalidPartitions(Failure):
    """An invalid number of partitions for a topic."""


class TopicExists(Failure):
    """A topic that cannot be created because it exists."""


class UnknownTopic(Failure):
    """A topic that cannot be changed because it is not in the catalogue."""


# --- changes ------------------------------------------------------------------------------------


def create_topic(
    root: str, name: str, partitions: int, prepare: Callable[[int], int | None] = lambda _: None
) -> None:
    """Create a topic, and the catalogue with the first one.

    Raises InvalidTopic, InvalidPartitions, TopicExists and TableMissing.
    """
    check_name(name)
    _check_partitions(name, partitions)
    if not has_catalogue(root):
        _check_never_made(root)
    ensure_table(root, TOPICS)
    _change(root, name, lambda newest: _new(root, name, partitions, newest), prepare)


def check_new_topic(root: str, name: str, partitions: int) -> None:
    """Raise what `create_topic` would raise now; change nothing."""
    check_name(name)
    _check_partitions(name, partitions)
    if has_catalogue(root):
        _new(root, name, partitions, read_newest(root))
    else:
        _check_never_made(root)


def alter_topic(
    root: str, name: str, partitions: int, prepare: Callable[[int], None] = lambda _: None
) -> None:
    """Increase a topic's number of partitions.

    Raises UnknownTopic, and InvalidPartitions unless the number is higher. As in Kafka, partitions
    cannot be removed, because their committed offsets would remain.
    """
    _check_partitions(name, partitions)
    _change(root, name, lambda newest: _more(root, name, partitions, newest), prepare)


def check_more_partitions(root: str, name: str, partitions: int) -> None:
    """Raise what `alter_topic` would raise now; change nothing."""
    _check_partitions(name, partitions)
    _more(root, name, partitions, read_newest(root) if has_catalogue(root) else {})


def delete_topic(root: str, name: str, prepare: Callable[[int], None] = lambda _: None) -> None:
    """Delete a topic from the catalogue; raises UnknownTopic.

    The coordinator deletes a group's offsets of the topic with the group's next request.
    `pipeline.admin.changes.delete_topic` sends a request to each such group.
    """

    def decide(newest: dict[str, TopicChange]) -> None:
        _existing(root, name, newest)

    _change(root, name, decide, prepare)


def check_name(name: str) -> None:
    """Raise InvalidTopic, with Kafka's message, unless Kafka accepts the name.

    Source: Kafka's Topic.validate.
    """
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > LONGEST_NAME:
        why = f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    elif not _LEGAL.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return
    raise InvalidTopic(f"Topic name is invalid: {why}")


def _check_partitions(name: str, partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidPartitions(f"topic {name!r} cannot have {partitions} partitions")


def _check_never_made(root: str) -> None:
    """Raise TableMissing if topics with tables are defined, because then a catalogue existed.

    A new catalogue would lack these topics, and maintenance deletes tables of topics that are not
    in the catalogue.
    """
    if not has_table(root, TOPIC_TABLES) or not read_table(root, TOPIC_TABLES).num_rows:
        return
    # Another process may have created both since the first check.
    if not has_catalogue(root):
        raise TableMissing(
            f"the root has topics with tables, but {table_uri(root, TOPICS)} cannot be found: "
            "restore it"
        )


def _new(root: str, name: str, partitions: int, newest: dict[str, TopicChange]) -> int:
    if name in counts_of(newest):
        raise TopicExists(f"topic {name!r} exists under {root}")
    return partitions


def _more(root: str, name: str, partitions: int, newest: dict[str, TopicChange]) -> int:
    present = _existing(root, name, newest)
    if partitions == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if partitions < present:
        raise InvalidPartitions(
            f"The topic {name} currently has {present} partition(s); "
            f"{partitions} would not be an increase."
        )
    return partitions


def _existing(root: str, name: str, newest: dict[str, TopicChange]) -> int:
    present = counts_of(newest).get(name)
    if present is None:
        raise UnknownTopic(f"there is no topic {name!r} in the catalogue of {root}")
    return present


def _change(root: str, name: str, decide: _Decide, prepare: Callable[[int], int | None]) -> None:
    try:
        appender = Appender(table_uri(root, TOPICS))
    except TableNotFoundError as error:
        raise UnknownTopic(f"there is no catalogue of topics under {root}") from error
    while True:
        # The version is read before the rows: a change that is committed in between takes this
        # version, and this change is decided again.
        version = appender.last_version(CATALOGUE_APP_ID) + 1
        changes = read_changes(root)
        newest = newest_of(changes)
        partitions = decide(newest)
        at = max([clock_ms(), *(change.at + 1 for change in newest.values())])
        wanted = prepare(creations_of(changes, {}).get(name, at))
        rows = to_arrow(TOPICS, [TopicChange(name, partitions, at if wanted is None else wanted)])
        if appender.append(rows, CATALOGUE_APP_ID, version):
            return
        appender.forget()


# --- reading ------------------------------------------------------------------------------------


def counts_of(newest: dict[str, TopicChange]) -> dict[str, int]:
    """Return the number of partitions of each existing topic, ordered by name."""
    return {name: change.partitions for name, change in sorted(newest.items()) if change.partitions}


def read_newest(root: str) -> dict[str, TopicChange]:
    """Return the newest change of every topic; raises deltalake's TableNotFoundError."""
    return newest_of(read_changes(root))


def read_changes(root: str) -> list[TopicChange]:
    """Return all changes of the catalogue; raises deltalake's TableNotFoundError."""
    return from_arrow(TopicChange, read_table(root, TOPICS))


def newest_of(changes: list[TopicChange]) -> dict[str, TopicChange]:
    """Return the newest change of every topic."""
    return {change.topic: change for change in sorted(changes, key=lambda change: change.at)}


def creations_of(changes: list[TopicChange], before: dict[str, int]) -> dict[str, int]:
    """Return the `at` of the row that created each existing topic.

    `before` is the result for earlier changes. `changes` may include some of these again.
    """
    created = dict(before)
    for change in sorted(changes, key=lambda change: change.at):
        if change.partitions is None:
            created.pop(change.topic, None)
        else:
            created.setdefault(change.topic, change.at)
    return created


def has_catalogue(root: str) -> bool:
    """Return whether the root has a catalogue."""
    return has_table(root, TOPICS)


# --- following ----------------------------------------------------------------------------------


class _KnownTopics(Struct, frozen=True):
    newest: dict[str, TopicChange]
    created: dict[str, int]
    deleted: dict[str, int]


class TopicWatcher:
    """A follower of the catalogue of a root; not thread-safe.

    A poll is one attempt to open the catalogue's next commit or, without a catalogue, its log.
    """

    def __init__(self, root: str) -> None:
        is_there = Absent(root, TOPICS).is_there
        self._table = TableFollower(table_uri(root, TOPICS), TOPICS.schema.names, _take, is_there)
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
        """Return each topic's number of partitions; None if no number changed since the last call.

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
