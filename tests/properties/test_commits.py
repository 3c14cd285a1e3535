"""For any commit and fault: an identifier only moves from its expected version.

Several writers move identifiers of one table. A disk or a store executes a request and reports a
failure, or the reverse. A writer is suspended between its look and its commit, while other writers
commit and clean up the log. Each commit also moves a unique identifier, which shows the
commit in the log. A local folder also represents an object store.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import (
    checkpoint,
    log_trim,
    object_store,
    storage,
    store_files,
    table,
    writer,
)
from group_coordinator.pipeline.delta.commit import ENGINE, EXPECTED, Bound, Changes, Move
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.delta.writer import Writer
from tests.clocks import AheadClocks
from tests.examples import examples

SCHEMA = pa.schema([("n", pa.int64())])
IDS = ("a", "b", "c")
WRITERS = st.integers(0, 2)
# The expected version of an identifier: its version, or another one; and the new version.
MOVES = st.dictionaries(
    st.sampled_from(IDS), st.tuples(st.sampled_from((0, 0, 0, 1)), st.integers(0, 5)), max_size=3
)
BOUNDS = st.none() | st.tuples(st.sampled_from(IDS), st.integers(0, 5))


class Tried(NamedTuple):
    """The changes of a writer's commit, and its unique identifier."""

    changes: Changes
    marker: str


class Commits(RuleBasedStateMachine):
    """A table without rows, its writers, and the identifiers according to its log."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.clocks = AheadClocks()
        self.folder = Path(tempfile.mkdtemp(prefix="commits-"))
        self.count = 0
        self.version = -1
        self.versions: dict[str, int] = {}
        self.markers: Counter[str] = Counter()
        # For each commit the number of times that the log has it: 1, 0, or None if it is unknown.
        self.told: dict[str, int | None] = {}
        self.unknown: list[Tried] = []

    @initialize(is_store=st.booleans())
    def begin(self, is_store: bool) -> None:
        DeltaTable.create(str(self.folder), SCHEMA)
        self.is_store = is_store
        if is_store:
            for module in (checkpoint, log_trim, store_files, table, writer):
                self.patch.setattr(module, "local_folder", lambda _uri: None)
            self.patch.setattr(object_store, "RETRY_BUDGET_S", 0.0)
        self.patch.setattr(object_store, "back_off", lambda _attempt: None)
        self.writers = [Writer(str(self.folder), flushed=False) for _ in range(3)]
        self.read_log()

    def teardown(self) -> None:
        try:
            if self.version >= 0:
                self.trim()
                self.every_commit_is_where_it_was_said_to_be()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    def read_log(self) -> None:
        """Read the new commits, and check that each was based on the versions that it expects."""
        while (path := commit_path(self.folder / "_delta_log", self.version + 1)).exists():
            actions = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
            info = next(each["commitInfo"] for each in actions if "commitInfo" in each)
            if info.get("engineInfo") == ENGINE:
                expected = info.get(EXPECTED, {})
                assert expected == {each: self.versions.get(each) for each in expected}
            for txn in (each["txn"] for each in actions if "txn" in each):
                self.versions[txn["appId"]] = txn["version"]
                self.markers[txn["appId"]] += 1
            self.version += 1

    # --- commits ----------------------------------------------------------------------------------

    def tried(self, moves: dict[str, tuple[int, int]], bound: tuple[str, int] | None) -> Tried:
        self.count += 1
        marker = f"marker-{self.count}"
        asked = [Move(marker, None, 0)]
        for name, (aside, to) in moves.items():
            at = self.versions.get(name)
            asked.append(Move(name, (at or 0) + aside if aside else at, to))
        bounds = [Bound(*bound)] if bound is not None and bound[0] not in moves else []
        return Tried(Changes(moves=asked, bounds=bounds), marker)

    def commit(self, number: int, tried: Tried) -> None:
        """Let a writer commit, and note the result; a forbidden commit must be refused."""
        changes, marker = tried
        with clock.use(self.clocks):
            try:
                told = self.writers[number].commit(changes)
            except CommitStateUnknown:
                self.told[marker] = None
                self.unknown.append(tried)
                return
            except OSError:
                # It is certainly not in the log.
                self.told[marker] = 0
                return
            finally:
                self.read_log()
        if isinstance(told, int):
            self.told[marker] = 1
            return
        found = {each: told[each] for each in told}
        is_there = found[marker] is not None
        self.told[marker] = int(is_there)
        if not is_there:
            assert any(found[each.app_id] != each.expected for each in changes.moves) or any(
                (found[each.app_id] or 0) > each.at_most for each in changes.bounds
            )

    @rule(number=WRITERS, moves=MOVES, bound=BOUNDS)
    def commit_at_peace(self, number: int, moves: Any, bound: Any) -> None:
        tried = self.tried(moves, bound)
        is_allowed = all(
            self.versions.get(each.app_id) == each.expected for each in tried.changes.moves
        ) and all(
            self.versions.get(each.app_id, 0) <= each.at_most for each in tried.changes.bounds
        )
        self.commit(number, tried)
        assert self.told[tried.marker] == is_allowed

    @rule(number=WRITERS, moves=MOVES, bound=BOUNDS, works=st.booleans(), often=st.integers(1, 5))
    def commit_and_be_told_nothing(
        self, number: int, moves: Any, bound: Any, works: bool, often: int
    ) -> None:
        """Create the file, or not, and let the disk or the store report a failure."""

        def failing(create: Callable[..., None], *arguments: Any) -> None:
            nonlocal often
            often -= 1
            if works:
                create(*arguments)
            if often:
                self.at_creation(failing)
            raise OSError(errno.EIO, "Input/output error")

        tried = self.tried(moves, bound)
        with pytest.MonkeyPatch.context() as self.now:
            self.at_creation(failing)
            self.commit(number, tried)

    @precondition(lambda self: not self.is_store)
    @rule(number=WRITERS, moves=MOVES)
    def commit_to_a_full_disk(self, number: int, moves: Any) -> None:
        def full(_create: Callable[..., None], *_arguments: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        tried = self.tried(moves, None)
        with pytest.MonkeyPatch.context() as self.now:
            self.at_creation(full)
            self.commit(number, tried)

    @rule(
        number=WRITERS,
        moves=MOVES,
        bound=BOUNDS,
        others=st.lists(MOVES, min_size=1, max_size=5),
        trims=st.booleans(),
    )
    def commit_late(self, number: int, moves: Any, bound: Any, others: Any, trims: bool) -> None:
        """Let others commit between the look and the creation, and maybe clean up the log."""

        def late(create: Callable[..., None], *arguments: Any) -> None:
            for each in others:
                self.commit((number + 1) % 3, self.tried(each, None))
            if trims:
                self.trim()
            create(*arguments)

        tried = self.tried(moves, bound)
        with pytest.MonkeyPatch.context() as self.now:
            self.at_creation(late)
            self.commit(number, tried)

    @precondition(lambda self: self.unknown)
    @rule(number=WRITERS)
    def commit_again(self, number: int) -> None:
        """Repeat a commit with an unknown outcome, by this writer or another one."""
        self.commit(number, self.unknown.pop())

    def at_creation(self, does: Callable[..., None]) -> None:
        """Replace the next creation of a commit by a function, which gets the original one."""
        owner: Any = ObjectStore if self.is_store else storage.os
        name = "put_absent" if self.is_store else "link"
        create = getattr(owner, name)

        def creating(*arguments: Any) -> None:
            self.now.setattr(owner, name, create)
            does(create, *arguments)

        self.now.setattr(owner, name, creating)

    # --- upkeep -----------------------------------------------------------------------------------

    @rule()
    def trim(self) -> None:
        """Clean up the log to its end, and commit late commits again."""
        self.read_log()
        # After this time no commit is young, and none is known as the log's end.
        self.clocks.monotonic_ahead_s += ObjectStore.costs.freed_s
        self.clocks.wall_ahead_s += ObjectStore.costs.freed_s
        with clock.use(self.clocks):
            DeltaTable(str(self.folder)).create_checkpoint()
            trim_log(str(self.folder), self.version, grace_s=0)
        self.read_log()

    @invariant()
    def every_commit_is_where_it_was_said_to_be(self) -> None:
        for marker, told in self.told.items():
            assert self.markers[marker] <= 1
            assert told is None or self.markers[marker] == told, marker


@pytest.mark.slow
class TestCommits(Commits.TestCase):
    settings = examples(20, stateful_step_count=20, phases=(Phase.explicit, Phase.generate))
