"""The catalogue of topics: which there are, and how many partitions each has.

A Delta table `topics`, append-only; the newest row of a topic is in force, and one without
partitions deletes it. It is there once somebody creates a topic: without a catalogue every topic's
name is taken, with one a commit to an unknown topic or partition is refused.

Changes are made one after the other whoever makes them: each is the next version of one application
in Delta's transaction identifiers, and whoever comes second decides anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from pipeline.clock import clock_ms
from pipeline.delta.appender import open_appender
from pipeline.delta.table import local_folder
from pipeline.delta.tail import follow
from pipeline.errors import Failure
from pipeline.tables.store import ensure_table, open_table, table_uri
from schemas.tables import TOPICS, TopicChange, from_arrow, to_arrow

if TYPE_CHECKING:
    from pipeline.delta.tail import Tail

CATALOGUE_APP_ID = "topics-catalogue"
LONGEST_NAME = 249
MOST_PARTITIONS = 2**31 - 1
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

# A change, given the newest row of every topic: the topic's next number of partitions. Raises
# Failure if there is to be none.
_Decide = Callable[[dict[str, TopicChange]], int | None]


class InvalidTopic(Failure):
    """A name that Kafka takes for no topic either; the message says why."""


class InvalidPartitions(Failure):
    """A number of partitions that the topic cannot have."""


class TopicExists(Failure):
    """A topic that is created is there already."""


class UnknownTopic(Failure):
    """A topic that is to be changed is not in the catalogue."""


# --- changes ------------------------------------------------------------------------------------


def create_topic(root: str, name: str, partitions: int) -> None:
    """Create a topic, and with the first one the catalogue.

    Raises InvalidTopic, InvalidPartitions and TopicExists.
    """
    check_name(name)
    _check_partitions(name, partitions)

    def decide(newest: dict[str, TopicChange]) -> int:
        if name in counts_of(newest):
            raise TopicExists(f"topic {name!r} exists under {root}")
        return partitions

    ensure_table(root, TOPICS)
    _change(root, name, decide)


def alter_topic(root: str, name: str, partitions: int) -> None:
    """Give a topic more partitions. Raises UnknownTopic, and InvalidPartitions unless it is more.

    Fewer would leave committed offsets of partitions that are not there (as in Kafka).
    """
    _check_partitions(name, partitions)

    def decide(newest: dict[str, TopicChange]) -> int:
        present = _existing(root, name, newest)
        if partitions <= present:
            raise InvalidPartitions(
                f"topic {name!r} has {present} partitions: their number can only grow, "
                f"not become {partitions}"
            )
        return partitions

    _change(root, name, decide)


def delete_topic(root: str, name: str) -> None:
    """Delete a topic; raises UnknownTopic. What groups have committed for it stays."""

    def decide(newest: dict[str, TopicChange]) -> None:
        _existing(root, name, newest)

    _change(root, name, decide)


def check_name(name: str) -> None:
    """Raise InvalidTopic unless Kafka would take the name. Source: Kafka's Topic.validate."""
    if not name:
        raise InvalidTopic("a topic's name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopic("a topic's name cannot be '.' or '..'")
    if len(name) > LONGEST_NAME:
        raise InvalidTopic(f"a topic's name has at most {LONGEST_NAME} characters, not {len(name)}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(f"topic {name!r}: only letters a to z, digits, '.', '_' and '-' go")


def _check_partitions(name: str, partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidPartitions(f"topic {name!r} cannot have {partitions} partitions")


def _existing(root: str, name: str, newest: dict[str, TopicChange]) -> int:
    present = counts_of(newest).get(name)
    if present is None:
        raise UnknownTopic(f"there is no topic {name!r} in the catalogue of {root}")
    return present


def _change(root: str, name: str, decide: _Decide) -> None:
    try:
        appender = open_appender(table_uri(root, TOPICS))
    except TableNotFoundError as error:
        raise UnknownTopic(f"there is no catalogue of topics under {root}") from error
    while True:
        # First the version and then the rows: what comes between the two takes our version.
        version = appender.last_version(CATALOGUE_APP_ID) + 1
        newest = _read(root)
        partitions = decide(newest)
        at = max([clock_ms(), *(change.at + 1 for change in newest.values())])
        rows = to_arrow(TOPICS, [TopicChange(name, partitions, at)])
        if appender.append(rows, CATALOGUE_APP_ID, version):
            return
        appender.forget()


# --- reading ------------------------------------------------------------------------------------


def read_counts(root: str) -> dict[str, int] | None:
    """Each topic's number of partitions; None if there is no catalogue."""
    try:
        return counts_of(_read(root))
    except TableNotFoundError:
        return None


def counts_of(newest: dict[str, TopicChange]) -> dict[str, int]:
    """The topics that are not deleted, each with its number of partitions, by name."""
    return {name: change.partitions for name, change in sorted(newest.items()) if change.partitions}


def _read(root: str) -> dict[str, TopicChange]:
    rows = open_table(root, TOPICS).to_pyarrow_table(columns=TOPICS.schema.names)
    return _newest(from_arrow(TopicChange, rows))


def _newest(changes: list[TopicChange]) -> dict[str, TopicChange]:
    return {change.topic: change for change in sorted(changes, key=lambda change: change.at)}


class TopicWatcher:
    """The catalogue of a root as it changes; not for two threads at once.

    A look costs one attempt to open a file, the catalogue's next commit; as long as there is no
    catalogue, the question whether it has a log.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._tail: Tail | None = None
        self._newest: dict[str, TopicChange] = {}

    @property
    def counts(self) -> dict[str, int] | None:
        """What the last `poll` left; None if there was no catalogue."""
        return None if self._tail is None else counts_of(self._newest)

    def poll(self) -> dict[str, int] | None:
        """Return each topic's number of partitions if that changed since the last call, else None.

        The first call that finds a catalogue returns what is in it.
        """
        before = self.counts
        if self._tail is None:
            if not has_catalogue(self._root):
                return None
            # The tail first: what comes between the two is read twice, and not missed.
            self._tail = follow(table_uri(self._root, TOPICS), TOPICS.schema.names)
            self._newest = _read(self._root)
        rows = self._tail.poll()
        if rows is not None:
            self._newest = _newest([*self._newest.values(), *from_arrow(TopicChange, rows)])
        now = self.counts
        return now if now != before else None


def has_catalogue(root: str) -> bool:
    """Whether somebody made a catalogue under the root."""
    uri = table_uri(root, TOPICS)
    folder = local_folder(uri)
    # delta-rs makes itself ready for a store first, which takes a hundred times as long.
    if folder is not None and not (folder / "_delta_log").exists():
        return False
    return bool(DeltaTable.is_deltatable(uri))
