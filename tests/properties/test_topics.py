"""For any change of a topic's table: an offset is assigned once, and keeps its record.

Several processes index a user's table while it grows and is rewritten. Several processes append to
a topic's own table. Reads fail, a commit's response is lost, a process is killed.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kafka.partitioner.default import murmur2

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import storage
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics import Appended, LogAppender, TableTopics
from group_coordinator.pipeline.topics.indexer import LOOK_AGAIN_S
from tests.clocks import AheadClocks
from tests.examples import examples
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, caught_up, define, opened, records
from tests.support.failing_reads import BROKEN, KINDS, count_reads, failing_reads

PARTITIONS = 2
ERRORS = (OSError, DeltaError, Failure)
READS = st.integers(1, 15)
KIND = st.sampled_from(KINDS)
WHO = st.integers(0, 1)


class Topic(RuleBasedStateMachine):
    """A topic, its readers, and the keys of its partitions' records in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="topics-"))
        self.root = str(self.folder / "root")
        self.clocks = AheadClocks()
        self.clock = clock.use(self.clocks)
        self.clock.__enter__()
        self.keys: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS
        self.count = 0
        self.readers: list[TableTopics] = []

    def teardown(self) -> None:
        try:
            for number in range(len(self.readers)):
                self.catch_up(number)
        finally:
            self.clock.__exit__(None, None, None)
            self.patch.undo()
            shutil.rmtree(self.folder)

    def new_keys(self, count: int) -> list[str]:
        self.count += count
        return [f"id-{n}" for n in range(self.count - count, self.count)]

    def read(self, topics: TableTopics, partition: int) -> list[str]:
        found = records(topics, partition)
        return [(record.key or b"").decode() for record in found]

    @rule(number=WHO)
    def catch_up(self, number: int) -> None:
        """Read without a fault: all records are found."""
        topics = self.readers[number]
        # A reader tries again after a condition that stopped it.
        self.clocks.monotonic_ahead_s += LOOK_AGAIN_S
        caught_up(topics)
        for partition, keys in enumerate(self.keys):
            assert topics.log_start("t", partition) == self.starts[partition]
            assert self.read(topics, partition) == keys[self.starts[partition] :]

    @rule(number=WHO, fails=READS, kind=KIND)
    def look_while_a_read_fails(self, number: int, fails: int, kind: int) -> None:
        with failing_reads(str(self.folder), fails, kind), suppress(*ERRORS):
            self.readers[number].poll()

    @rule(number=WHO)
    def start_anew(self, number: int) -> None:
        self.readers[number] = TableTopics(self.root)
        self.readers[number].poll()

    @invariant()
    def what_is_known_is_the_beginning(self) -> None:
        """Check that a reader knows a prefix of the records: no offset was changed or lost."""
        for topics in self.readers:
            for partition, keys in enumerate(self.keys):
                with suppress(Failure):
                    assert topics.log_end("t", partition) <= len(keys)


class Indexed(Topic):
    """A user's table with two readers; either of them assigns offsets to its rows."""

    @initialize()
    def begin(self) -> None:
        count_reads(self.patch, BROKEN)
        self.uri = str(self.folder / "users")
        self.append(1)
        define(self.root, self.uri, PARTITIONS)
        self.readers = [opened(self.root) for _ in range(2)]

    def placed(self, keys: list[str]) -> None:
        for key in keys:
            self.keys[(murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS].append(key)

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        keys = self.new_keys(count)
        append(self.uri, [int(key[3:]) for key in keys])
        self.placed(keys)

    @rule()
    def optimize(self) -> None:
        DeltaTable(self.uri).optimize.compact()

    @rule(number=WHO, other=st.booleans(), count=st.integers(1, 3))
    def index_while_another_does(self, number: int, other: bool, count: int) -> None:
        """Index while another reader does, which has read the same rows or more."""
        self.append(count)
        mine, others = self.readers[number], self.readers[1 - number]
        index = mine._index
        commit = index.append

        def later(*arguments: Any) -> bool:
            patch.undo()
            if other:
                self.append(1)
            caught_up(others)
            return commit(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index, "append", later)
            mine.poll()

    @rule(number=WHO, works=st.booleans(), count=st.integers(1, 3))
    def be_killed_while_it_indexes(self, number: int, works: bool, count: int) -> None:
        self.append(count)
        with pytest.MonkeyPatch.context() as patch:
            at_link(patch, works, KeyboardInterrupt())
            with suppress(KeyboardInterrupt):
                self.readers[number].poll()
        self.start_anew(number)

    @precondition(lambda self: any(self.keys[p][self.starts[p] :] for p in range(PARTITIONS)))
    @rule(count=st.integers(0, 2))
    def delete_rows_and_begin_anew(self, count: int) -> None:
        """Delete rows: the topic ends before the deletion, and restarts after its end."""
        self.catch_up(0)
        first = next(key for p in range(PARTITIONS) for key in self.keys[p][self.starts[p] :])
        DeltaTable(self.uri).delete(f"id = '{first}'")
        left = {key for p in range(PARTITIONS) for key in self.keys[p][self.starts[p] :]} - {first}
        left |= {*(more := self.new_keys(count))}
        if more:
            append(self.uri, [int(key[3:]) for key in more])
        for topics in self.readers:
            caught_up(topics)
            assert "removes or changes rows" in str(topics.problems()["t"])
        self.what_is_known_is_the_beginning()
        self.readers[0].reindex("t")
        self.starts = [len(keys) for keys in self.keys]
        topics = opened(self.root)
        found = [self.read(topics, partition) for partition in range(PARTITIONS)]
        assert sorted(key for part in found for key in part) == sorted(left)
        for keys, part in zip(self.keys, found, strict=True):
            keys += part
        self.readers = [topics, opened(self.root)]


class Logged(Topic):
    """A topic's own table, with two writers."""

    @initialize()
    def begin(self) -> None:
        self.topic = make(self.root, PARTITIONS)
        count_reads(self.patch, BROKEN)
        self.appenders = [appender(self.topic) for _ in range(2)]
        self.readers = [opened(self.root) for _ in range(2)]

    def batches(self, counts: list[int]) -> list[tuple[int, list[str]]]:
        return [(number % PARTITIONS, self.new_keys(count)) for number, count in enumerate(counts)]

    def append(self, writer: LogAppender, parts: list[tuple[int, list[str]]]) -> None:
        """Append, and check that the acknowledged offsets follow the earlier ones."""
        outcomes = writer.append([batch(partition, *keys) for partition, keys in parts])
        for (partition, keys), told in zip(parts, outcomes, strict=True):
            assert isinstance(told, Appended)
            assert told.base_offset == len(self.keys[partition])
            self.keys[partition] += keys

    @rule(number=WHO, counts=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def append_at_peace(self, number: int, counts: list[int]) -> None:
        self.append(self.appenders[number], self.batches(counts))

    @rule(number=WHO, mine=st.integers(1, 2), others=st.integers(1, 2))
    def append_while_another_does(self, number: int, mine: int, others: int) -> None:
        link = storage.os.link

        def later(*arguments: Any) -> None:
            patch.undo()
            self.append(self.appenders[1 - number], self.batches([1] * others))
            link(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(storage.os, "link", later)
            self.append(self.appenders[number], self.batches([2] * mine))

    @rule(number=WHO, works=st.booleans(), count=st.integers(1, 3))
    def append_and_be_told_nothing(self, number: int, works: bool, count: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            at_link(patch, works, OSError(errno.EIO, "Input/output error"))
            self.append(self.appenders[number], self.batches([count]))

    @rule(number=WHO, works=st.booleans(), count=st.integers(1, 3))
    def be_killed_while_it_appends(self, number: int, works: bool, count: int) -> None:
        """Kill a writer during an append: its file exists, and its commit may."""
        ((partition, keys),) = self.batches([count])
        with pytest.MonkeyPatch.context() as patch:
            at_link(patch, works, KeyboardInterrupt())
            with suppress(KeyboardInterrupt):
                self.appenders[number].append([batch(partition, *keys)])
        if works:
            self.keys[partition] += keys
        self.appenders[number] = appender(self.topic)

    @rule(number=WHO, fails=READS, kind=KIND, count=st.integers(1, 3))
    def append_while_a_read_fails(self, number: int, fails: int, kind: int, count: int) -> None:
        ((partition, keys),) = self.batches([count])
        with failing_reads(str(self.folder), fails, kind):
            try:
                self.append(self.appenders[number], [(partition, keys)])
            except ERRORS:
                # Acknowledged or not, it is complete or absent.
                pass
            else:
                return
        there = opened(self.root).log_end("t", partition) - len(self.keys[partition])
        assert there in (0, count)
        self.keys[partition] += keys[:there]

    @rule()
    def optimize(self) -> None:
        DeltaTable(self.topic.table).optimize.compact()


def at_link(patch: pytest.MonkeyPatch, works: bool, error: BaseException) -> None:
    """Let the next link of a commit raise an error, after it was made if it `works`."""
    link: Callable[..., None] = storage.os.link

    def failing(*arguments: Any) -> None:
        patch.setattr(storage.os, "link", link)
        if works:
            link(*arguments)
        raise error

    patch.setattr(storage.os, "link", failing)


PHASES = (Phase.explicit, Phase.generate)


@pytest.mark.slow
class TestIndexed(Indexed.TestCase):
    settings = examples(4, stateful_step_count=12, phases=PHASES)


@pytest.mark.slow
class TestLogged(Logged.TestCase):
    settings = examples(6, stateful_step_count=15, phases=PHASES)
