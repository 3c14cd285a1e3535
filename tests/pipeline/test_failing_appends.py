"""An append also reads. If any of its reads fails once, the table has exactly the reported rows.

An appender has opened a table, to which others append meanwhile. One of the reads of its append
fails: the first, the second, ..., until there are no more. An acknowledged append is in the table
once. A failed one is not, unless its outcome is unknown. Then it is there once or not at all, and
can be repeated if it has an identifier. The rows of other writers are unchanged.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.ownership import CLAIMED
from group_coordinator.pipeline.delta.appender import Appender, Epoch, FencedError, raise_epoch
from group_coordinator.pipeline.delta.storage import CommitStateUnknown, NotFlushed
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.tables.acl_table import add_acls, read_acls
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import TopicExists, create_topic, read_newest
from group_coordinator.pipeline.topics.index import Index
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import COORDINATORS, RESPONSES, to_arrow
from tests.pipeline.rows import response
from tests.pipeline.topics.logs import appender, make, of_producer, values
from tests.pipeline.topics.tables import definition_of, opened
from tests.support.failing_reads import (
    AWAY,
    KINDS,
    SHORT,
    SLOW_DOWN,
    STORE_KINDS,
    TOO_MANY_FILES,
    count_reads,
    failing_reads,
    name_of,
)

UNKNOWN = (CommitStateUnknown, NotFlushed)
ERRORS = (OSError, DeltaError, Failure)
MOST_READS = 200
# The rows of a table that only an append creates.
FIRST = 9


class Writer(ABC):
    """A writer that appends to a table of a root."""

    # Whether an append may be repeated, and is then in the table once.
    has_names = True

    def __init__(self, root: str) -> None:
        self.root = root

    @classmethod
    @abstractmethod
    def begin(cls, root: str) -> None:
        """Create the table."""

    @abstractmethod
    def append(self, number: int) -> None:
        """Append the row with this number; raise the errors of the appender."""

    @classmethod
    @abstractmethod
    def found(cls, root: str) -> list[int]:
        """Return the numbers of the table's rows, in any order."""

    @classmethod
    def append_beside(cls, root: str, number: int) -> None:
        """Append as another process does."""
        cls(root).append(number)


class Rows(Writer):
    """Rows under a transaction identifier, like a query's batches."""

    is_flushed = False

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._appender = Appender(table_uri(root, RESPONSES), flushed=self.is_flushed)

    @classmethod
    def begin(cls, root: str) -> None:
        ensure_table(root, RESPONSES)

    def append(self, number: int) -> None:
        rows = to_arrow(RESPONSES, [response(str(number))])
        self._appender.append(rows, f"query-{number}", 1)

    @classmethod
    def found(cls, root: str) -> list[int]:
        rows = open_delta(table_uri(root, RESPONSES)).to_pyarrow_table()
        return [int(name) for name in rows.column("request_id").to_pylist()]


class FlushedRows(Rows):
    is_flushed = True


class RowsOnly(Rows):
    """Rows of a producer without an identifier."""

    has_names = False

    def append(self, number: int) -> None:
        self._appender.append(to_arrow(RESPONSES, [response(str(number))]))


class Records(Writer):
    """Records of a topic's own table, of an idempotent producer."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._appender = appender(definition_of(root))

    @classmethod
    def begin(cls, root: str) -> None:
        make(root, 1)

    def append(self, number: int) -> None:
        (outcome,) = self._appender.append([of_producer(number, str(number))])
        # A refusal is final for a producer: if one look finds nothing, a second one confirms it.
        assert not isinstance(outcome, Failure), outcome

    @classmethod
    def found(cls, root: str) -> list[int]:
        return [int(value) for _, value in values(opened(root))]


class Decisions(Writer):
    """Decisions that are repeated until no other writer was faster."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._log = DecisionLog(root)

    @classmethod
    def begin(cls, root: str) -> None:
        ensure_table(root, COORDINATORS)

    def append(self, number: int) -> None:
        self._log.decide_until(
            lambda cluster: (
                []
                if number in cluster.partitions
                else [CoordinatorEvent(1_000, 0, CLAIMED, 1, number, "h", 9092)]
            )
        )

    @classmethod
    def found(cls, root: str) -> list[int]:
        rows = open_delta(table_uri(root, COORDINATORS)).to_pyarrow_table()
        epochs = rows.column("epoch").to_pylist()
        assert len(set(epochs)) == len(epochs)
        found: list[int] = rows.column("partition").to_pylist()
        return found


class Acls(Writer):
    @classmethod
    def begin(cls, root: str) -> None:
        cls(root).append(FIRST)

    def append(self, number: int) -> None:
        add_acls(
            self.root, [AclBinding("TOPIC", str(number), "LITERAL", "User:a", "*", "READ", "ALLOW")]
        )

    @classmethod
    def found(cls, root: str) -> list[int]:
        acls = read_acls(root) or ()
        return [int(acl.resource_name) for acl in acls if acl.resource_name != str(FIRST)]


class Catalogue(Writer):
    @classmethod
    def begin(cls, root: str) -> None:
        cls(root).append(FIRST)

    def append(self, number: int) -> None:
        with suppress(TopicExists):
            create_topic(self.root, f"t{number}", 1)

    @classmethod
    def found(cls, root: str) -> list[int]:
        return [int(name[1:]) for name in read_newest(root) if name != f"t{FIRST}"]


class Entries(Writer):
    """Entries of the index, which follow each other."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._index = Index(root)
        self._index.poll()

    @classmethod
    def begin(cls, root: str) -> None:
        cls(root).append(FIRST)

    def append(self, number: int) -> None:
        while True:
            self._index.poll()
            topic = self._index.topic("x")
            if topic.has(str(number)):
                return
            entry = TopicIndexEntry(
                "x",
                "x",
                topic.sequence + 1,
                version=number,
                partition=0,
                file=str(number),
                row_group=0,
                base_offset=topic.partition(0).log_end,
                count=10,
                min_timestamp=number,
                max_timestamp=number,
                committed_at=number,
                partitions=1,
            )
            if self._index.append("x", [entry]):
                return

    @classmethod
    def found(cls, root: str) -> list[int]:
        index = Index(root)
        index.poll()
        topic = index.topic("x")
        assert topic.problem is None
        assert topic.partition(0).log_end == 10 * len(topic.files)
        return [int(file.path) for file in topic.files if file.path != str(FIRST)]


WRITERS: list[type[Writer]] = [
    Rows,
    FlushedRows,
    RowsOnly,
    Records,
    Decisions,
    Acls,
    Catalogue,
    Entries,
]


# Whether the appender was open before, and how a read fails.
CASES = [
    *(pytest.param(True, kind, id=name_of(kind)) for kind in (*KINDS, *STORE_KINDS)),
    *(
        pytest.param(False, kind, id=f"opened anew, {name_of(kind)}")
        for kind in (TOO_MANY_FILES, AWAY, SHORT, SLOW_DOWN)
    ),
]


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a kind of failing read, on a disk or in a store."""
    found: int = request.param
    count_reads(monkeypatch, found)
    return found


@pytest.mark.full
@pytest.mark.parametrize(("is_open", "kind"), CASES, indirect=["kind"])
@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: each.__name__)
def test_the_table_has_what_was_said_whichever_read_of_an_append_fails(
    tmp_path: Path, writer: type[Writer], is_open: bool, kind: int
) -> None:
    base = tmp_path / "base"
    writer.begin(str(base))
    for fails in range(1, MOST_READS):
        root = str(tmp_path / f"root-{fails}")
        shutil.copytree(base, root)
        writer.append_beside(root, 0)
        one = writer(root) if is_open else None
        writer.append_beside(root, 1)
        counts = [1]
        with failing_reads(root, fails, kind) as reads:
            try:
                one = one or writer(root)
                one.append(2)
            except UNKNOWN:
                counts = [0, 1]
            except ERRORS:
                counts = [0]
            has_failed = reads.has_failed
        found = writer.found(root)
        assert found.count(2) in counts, f"after read {fails} had failed"
        assert sorted(number for number in found if number != 2) == [0, 1]
        if not has_failed:
            assert fails > 1
            return
        if counts != [1] and (writer.has_names or 2 not in found):
            repeat(one or writer(root))
            assert sorted(writer.found(root)) == [0, 1, 2, 3]
    raise AssertionError("it reads for ever")


def repeat(one: Writer) -> None:
    """Append the rows that were not acknowledged."""
    try:
        one.append(2)
    except NotFlushed:
        # The appender must be opened again.
        one = type(one)(one.root)
        one.append(2)
    one.append(3)


@pytest.mark.full
@pytest.mark.parametrize("kind", [*KINDS, *STORE_KINDS], ids=name_of, indirect=True)
def test_a_start_that_was_fenced_appends_nothing_whichever_read_fails(
    tmp_path: Path, kind: int
) -> None:
    base = tmp_path / "base"
    Rows.begin(str(base))
    for fails in range(1, MOST_READS):
        root = str(tmp_path / f"root-{fails}")
        shutil.copytree(base, root)
        uri = table_uri(root, RESPONSES)
        raise_epoch(uri, Epoch(1, 4))
        fenced = Appender(uri, Epoch(1, 4))
        raise_epoch(uri, Epoch(1, 5))
        with failing_reads(root, fails, kind) as reads:
            for number in range(3):
                with pytest.raises(ERRORS):
                    fenced.append(to_arrow(RESPONSES, [response("1")]), "query", number)
            has_failed = reads.has_failed
        with pytest.raises(FencedError):
            fenced.append(to_arrow(RESPONSES, [response("1")]), "query", 4)
        assert Rows.found(root) == []
        if not has_failed:
            assert fails > 1
            return
    raise AssertionError("it reads for ever")
