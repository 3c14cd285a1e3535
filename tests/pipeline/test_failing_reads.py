"""A follower of a table advances only past data that it has read, whichever read fails once.

Each follower has read a table, which then grows. One of the reads of its next look fails: the
first, the second, ..., until there are no more. Meanwhile the follower may report an error, or keep
its state; it never has any other state. Afterwards it has the state of a new follower.
"""

from __future__ import annotations

import gc
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.ownership import CLAIMED, STARTED
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.followed import TableTail, follow
from group_coordinator.pipeline.delta.identity import CHECK_S
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.tables.acl_table import AclWatcher, add_acls, remove_acls
from group_coordinator.pipeline.tables.store import ensure_table, read_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import (
    TopicWatcher,
    create_topic,
    delete_topic,
)
from group_coordinator.pipeline.topics import TableTopics
from group_coordinator.pipeline.topics.definition import read_definitions
from group_coordinator.pipeline.topics.index import Index
from group_coordinator.pipeline.topics.indexer import LOOK_AGAIN_S
from group_coordinator.pipeline.topics.segments import Segments
from group_coordinator.schemas.acls import AclBinding, AclFilter
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import COORDINATORS, RESPONSES, to_arrow
from tests.clocks import AheadClocks
from tests.pipeline.rows import response
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define, ends, everything, opened
from tests.support.failing_reads import (
    AWAY,
    BROKEN,
    KINDS,
    SHORT,
    SILENT,
    STORE_KINDS,
    FailingReads,
    count_reads,
    failing_reads,
    name_of,
    telling_of_reads,
)

# The errors that users of followers handle.
ERRORS = (OSError, DeltaError, Failure)
MOST_READS = 200


class Follower(ABC):
    """A follower of a table of a root."""

    # The name of the table that it follows.
    table: str

    # Its state of the table's first version, if that is not a later state.
    first: object = None

    def __init__(self, root: str) -> None:
        self.root = root

    @classmethod
    def folder(cls, root: str) -> Path:
        """Return the folder of its table."""
        return Path(root, cls.table)

    @classmethod
    @abstractmethod
    def begin(cls, root: str) -> None:
        """Create the table, with some rows."""

    @classmethod
    @abstractmethod
    def grow(cls, root: str) -> Iterator[None]:
        """Commit to the table at least twice; yield after each commit."""

    @abstractmethod
    def poll(self) -> None:
        """Read new rows."""

    @abstractmethod
    def known(self) -> object:
        """Return its state of the table."""


class Responses(Follower):
    """A tail with its rows."""

    table = RESPONSES.name

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._tail: TableTail = follow(table_uri(root, RESPONSES), ["request_id"])
        self._ids = self._all()

    def _all(self) -> list[str]:
        rows = read_table(self.root, RESPONSES)
        return sorted(rows.column("request_id").to_pylist())

    @classmethod
    def begin(cls, root: str) -> None:
        ensure_table(root, RESPONSES)
        cls._append(root, "a", "b")

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        for name in ("c", "d", "e"):
            yield cls._append(root, name)

    @classmethod
    def _append(cls, root: str, *names: str) -> None:
        writer = Appender(Path(table_uri(root, RESPONSES)))
        for name in names:
            writer.append(to_arrow(RESPONSES, [response(name)]))

    def poll(self) -> None:
        try:
            rows = self._tail.poll()
        except LogGone:
            tail = follow(table_uri(self.root, RESPONSES), ["request_id"])
            self._ids, self._tail = self._all(), tail
            return
        if rows is not None:
            self._ids = sorted(self._ids + rows.column("request_id").to_pylist())

    def known(self) -> object:
        return self._ids


class Topics(Follower):
    table = "topics"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._watcher = TopicWatcher(root)

    @classmethod
    def begin(cls, root: str) -> None:
        create_topic(root, "a", 1)
        create_topic(root, "b", 2)
        delete_topic(root, "b")

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        yield create_topic(root, "c", 3)
        yield delete_topic(root, "a")
        yield create_topic(root, "a", 4)

    def poll(self) -> None:
        self._watcher.poll()

    def known(self) -> object:
        return self._watcher.catalogue


def acl(name: str, permission: str = "ALLOW") -> AclBinding:
    return AclBinding("TOPIC", name, "LITERAL", f"User:{name}", "*", "READ", permission)


class AccessControl(Follower):
    table = "acls"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._watcher = AclWatcher(root)

    @classmethod
    def begin(cls, root: str) -> None:
        add_acls(root, [acl("a"), acl("b", "DENY")])

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        add_acls(root, [acl("c", "DENY")])
        yield
        assert remove_acls(root, [AclFilter(resource_name="a")]) == [acl("a")]
        yield
        add_acls(root, [acl("d")])
        yield

    def poll(self) -> None:
        self._watcher.poll()

    def known(self) -> object:
        return self._watcher.acls


class Decisions(Follower):
    table = COORDINATORS.name

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._log = DecisionLog(root)
        self._known: object = None

    @classmethod
    def begin(cls, root: str) -> None:
        ensure_table(root, COORDINATORS)
        cls._decide(root, (STARTED, None), (CLAIMED, 3))

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        for event in ((CLAIMED, 4), (STARTED, None), (CLAIMED, 5)):
            yield cls._decide(root, event)

    @classmethod
    def _decide(cls, root: str, *events: tuple[str, int | None]) -> None:
        log = DecisionLog(root)
        for event, partition in events:
            row = CoordinatorEvent(1_000, 0, event, 1, partition, "h", 9092)
            assert log.decide(log.read(), [row]) is not None

    def poll(self) -> None:
        self._known = self._log.read(), self._log.starts_of(1)

    def known(self) -> object:
        return self._known


class Appends(Follower):
    """An appender's state of its table."""

    table = RESPONSES.name

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._snapshot = Snapshot(table_uri(root, RESPONSES))
        self._snapshot.last_version("app")

    @classmethod
    def begin(cls, root: str) -> None:
        ensure_table(root, RESPONSES)
        cls._append(root, 1, 2)

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        for number in (3, 4, 5):
            yield cls._append(root, number)

    @classmethod
    def _append(cls, root: str, *numbers: int) -> None:
        writer = Appender(Path(table_uri(root, RESPONSES)))
        for number in numbers:
            assert writer.append(to_arrow(RESPONSES, [response(str(number))]), "app", number)

    def poll(self) -> None:
        self._snapshot.follow()

    def known(self) -> object:
        now, state = self._snapshot, self._snapshot.state
        files = sorted(state.files.values())
        return state.version, files, now.last_version("app"), now.features, state.partition_by


class Entries(Follower):
    """The index of topics."""

    table = "topic_index"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._index = Index(root)

    @classmethod
    def begin(cls, root: str) -> None:
        cls._append(root, ("x", 1), ("y", 1))

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        for sequence in (("x", 2), ("y", 2), ("x", 3)):
            yield cls._append(root, sequence)

    @classmethod
    def _append(cls, root: str, *sequences: tuple[str, int]) -> None:
        for topic, sequence in sequences:
            file = TopicIndexEntry(
                topic,
                topic,
                sequence,
                version=sequence,
                partition=0,
                file=f"{sequence}.parquet",
                row_group=0,
                base_offset=10 * (sequence - 1),
                count=10,
                min_timestamp=sequence,
                max_timestamp=sequence,
                committed_at=sequence,
                partitions=1,
            )
            done = TopicIndexEntry(topic, topic, sequence, version=sequence)
            index = Index(root)
            index.poll()
            assert index.append(topic, [file, done])

    def poll(self) -> None:
        self._index.poll()

    def known(self) -> object:
        if not self._index.is_read:
            return None
        topics = [self._index.topic(name) for name in ("x", "y")]
        return [
            (each.sequence, each.done, len(each.files), each.partition(0).log_end)
            for each in topics
        ]


class OwnTable(Follower):
    """A topic's own table, as readers and appenders of its records know it."""

    first: ClassVar[dict[int, object]] = {}

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._segments = Segments(str(self.folder(root)))

    @classmethod
    def folder(cls, root: str) -> Path:
        (table,) = Path(root, "topic_records").iterdir()
        return table

    @classmethod
    def begin(cls, root: str) -> None:
        topic = make(root, 2)
        appender(topic).append([batch(0, "a", "b"), batch(1, "c")])

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        (topic,) = read_definitions(root)
        for number in (0, 1, 0):
            appender(topic).append([batch(number, "x", "y")])
            yield

    def poll(self) -> None:
        self._segments.poll()

    def known(self) -> object:
        if not self._segments.is_whole:
            return None
        return {
            number: (each.log_start, each.log_end, len(each.segments))
            for number, each in self._segments.partitions().items()
        }


class UsersTable(Follower):
    """A user's table that is a topic, which its reader indexes."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._topics = TableTopics(root)

    @classmethod
    def folder(cls, root: str) -> Path:
        return Path(root, "rows")

    @classmethod
    def begin(cls, root: str) -> None:
        append(f"{root}/rows", range(10))
        define(root, f"{root}/rows", 2)

    @classmethod
    def grow(cls, root: str) -> Iterator[None]:
        for number in (1, 2, 3):
            append(f"{root}/rows", range(10 * number, 10 * number + 10))
            yield

    def poll(self) -> None:
        self._topics.poll()
        if problem := self._topics.problems().get("t"):
            raise problem

    def known(self) -> object:
        try:
            return ends(self._topics) if self._topics.topics() else None
        except Failure:
            return None


FOLLOWERS: list[type[Follower]] = [
    Responses,
    Topics,
    AccessControl,
    Decisions,
    Appends,
    Entries,
    OwnTable,
    UsersTable,
]


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a kind of failing read, on a disk or in a store."""
    found: int = request.param
    count_reads(monkeypatch, found)
    return found


def until_quiet(follower: Follower, states: Sequence[object] = ()) -> None:
    """Poll until a look finds nothing new; check that each state meanwhile is one of the states."""
    before: object = ...
    while before != (before := follower.known()):
        try:
            follower.poll()
        finally:
            assert not states or follower.known() in states


def trim(folder: Path) -> None:
    """Delete the log below its newest checkpoint, as if others had read it."""
    clean_log(open_delta(str(folder)))
    trim_log(str(folder), open_delta(str(folder)).version(), grace_s=0)


@pytest.mark.full
@pytest.mark.parametrize("kind", [*KINDS, *STORE_KINDS], ids=name_of, indirect=True)
@pytest.mark.parametrize("trimmed", [False, True], ids=["whole log", "trimmed log"])
@pytest.mark.parametrize("follower", FOLLOWERS, ids=lambda each: each.__name__)
def test_a_follower_knows_the_table_whichever_read_fails(
    tmp_path: Path, follower: type[Follower], trimmed: bool, kind: int
) -> None:
    base, grown = tmp_path / "base", tmp_path / "grown"
    follower.begin(str(base))
    shutil.copytree(base, grown)
    states: list[object] = [None, read_whole(follower, grown).known()]
    states += [read_whole(follower, grown).known() for _ in follower.grow(str(grown))]
    assert states.count(None) == 1
    if trimmed:
        trim(follower.folder(str(grown)))
    else:
        # A missing commit counts as one that was not written yet.
        states.insert(0, follower.first)
    for fails in range(1, MOST_READS):
        root = tmp_path / f"root-{fails}"
        shutil.copytree(base, root)
        one = read_whole(follower, root)
        make_like(root, grown)
        with failing_reads(str(root), fails, kind) as reads:
            with suppress(*ERRORS):
                until_quiet(one, states[-4:])
            has_failed = reads.has_failed
        until_quiet(one)
        assert one.known() == states[-1], f"after read {fails} had failed"
        if not has_failed:
            assert fails > 1
            break
    else:
        raise AssertionError("it reads for ever")
    # The same for a follower that has read nothing yet.
    for fails in range(1, MOST_READS):
        with failing_reads(str(grown), fails, kind) as reads:
            late = None
            with suppress(*ERRORS):
                late = follower(str(grown))
                until_quiet(late, states)
            has_failed = reads.has_failed
        if late is not None:
            until_quiet(late)
            assert late.known() == states[-1], f"after read {fails} had failed"
        if not has_failed:
            return
    raise AssertionError("it reads for ever")


def make_like(root: Path, grown: Path) -> None:
    """Give a folder exactly the files of another one."""
    shutil.copytree(grown, root, dirs_exist_ok=True)
    for path in root.rglob("*"):
        if path.is_file() and not (grown / path.relative_to(root)).exists():
            path.unlink()


def read_whole(follower: type[Follower], root: Path) -> Follower:
    one = follower(str(root))
    until_quiet(one)
    return one


@pytest.mark.full
@pytest.mark.parametrize("kind", [BROKEN, AWAY, SHORT, SILENT], ids=name_of, indirect=True)
def test_rows_of_a_user_are_indexed_once_whichever_read_fails(tmp_path: Path, kind: int) -> None:
    """Records are complete and unchanged, or there is an error."""
    for fails in range(1, MOST_READS):
        root = str(tmp_path / f"root-{fails}")
        UsersTable.begin(root)
        topics = opened(root)
        with failing_reads(root, fails, kind) as reads:
            for number in (1, 2):
                append(f"{root}/rows", range(10 * number, 10 * number + 10))
                before = ends(topics)
                with suppress(*ERRORS):
                    topics.catch_up()
                assert all(now >= was for now, was in zip(ends(topics), before, strict=True))
                with suppress(*ERRORS):
                    everything(topics)
            has_failed = reads.has_failed
        topics.catch_up()
        assert topics.problems() == {}, f"after read {fails} had failed"
        found = everything(topics)
        assert sum(map(len, found)) == 30
        assert everything(opened(root)) == found
        if not has_failed:
            assert fails > 1
            return
    raise AssertionError("it reads for ever")


def test_a_topic_whose_table_was_away_for_some_time_goes_on(tmp_path: Path) -> None:
    root, table, away = str(tmp_path), tmp_path / "rows", tmp_path / "away"
    UsersTable.begin(root)
    topics, clocks = opened(root), AheadClocks()
    with clock.use(clocks):
        table.rename(away)
        for _ in range(3):
            clocks.monotonic_ahead_s += CHECK_S
            topics.poll()
            assert topics.problems()
        away.rename(table)
        append(str(table), range(10, 20))
        topics.poll()
        assert topics.problems(), "a look at a table that is gone is not made many times a second"
        clocks.monotonic_ahead_s += LOOK_AGAIN_S
        topics.catch_up()
    assert topics.problems() == {}
    assert sum(end for _, end in ends(topics)) == 20


def test_a_topic_whose_table_was_away_for_one_look_goes_on_with_the_next(tmp_path: Path) -> None:
    root, table, away = str(tmp_path), tmp_path / "rows", tmp_path / "away"
    UsersTable.begin(root)
    topics, clocks = opened(root), AheadClocks()
    with clock.use(clocks):
        clocks.monotonic_ahead_s += CHECK_S
        table.rename(away)
        topics.poll()
        assert topics.problems()
        away.rename(table)
        append(str(table), range(10, 20))
        topics.catch_up()
    assert topics.problems() == {}
    assert sum(end for _, end in ends(topics)) == 20


def test_a_table_whose_checkpoint_is_away_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "GONE_CHECK_S", 60.0)
    OwnTable.begin(str(tmp_path))
    assert len(list(OwnTable.grow(str(tmp_path)))) == 3
    folder = OwnTable.folder(str(tmp_path))
    trim(folder)
    segments = Segments(str(folder))
    note = folder / "_delta_log" / "_last_checkpoint"
    note.rename(tmp_path / "away")
    with pytest.raises(Failure, match=r"the log of .* cannot be found"):
        segments.poll()
    assert not segments.is_whole
    (tmp_path / "away").rename(note)
    assert segments.poll()
    assert (segments.is_whole, segments.partition(0).log_end) == (True, 6)


def test_a_table_that_is_kept_holds_nobody_who_was_told_of_its_reads(tmp_path: Path) -> None:
    """A simulated node is killed with its tables open: they would keep its world in memory."""
    reads = FailingReads(str(tmp_path), 0, BROKEN)
    dropped = weakref.ref(reads)
    ensure_table(str(tmp_path), RESPONSES)
    with telling_of_reads(reads):
        kept = open_delta(table_uri(str(tmp_path), RESPONSES))
    assert reads.count > 0
    del reads
    gc.collect()
    assert dropped() is None
    assert kept.version() == 0
