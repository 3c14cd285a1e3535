"""Checks of a root after every commit, and at the end of a run.

An observer sees every commit as soon as it is visible. It checks every response against the log of
the group (`groups_log`) and the sessions of its members (`sessions`). It knows the requests and
their times from the commits to `requests`; it calls no code under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.ownership import NO_EPOCH, ClusterState, fold
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.tables.store import WRITTEN
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.messages import RequestEvent, Response
from group_coordinator.schemas.records import (
    OFFSET_COMMIT,
    CoordinatorEvent,
    CoordinatorRecord,
    GroupEvent,
)
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    TOPICS,
    from_arrow,
)
from tests.trials.simulation.batches import Batches
from tests.trials.simulation.groups_log import GroupsLog
from tests.trials.simulation.promises import (
    ANSWERED_ONCE,
    ANSWERED_SOON,
    FENCED,
    ONE_OWNER,
    RECORDED_ONCE,
    REPLACED,
    SAME_AGAIN,
)
from tests.trials.simulation.sessions import Sessions
from tests.trials.simulation.world import NO_BUG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from group_coordinator.pipeline.delta.appender import Epoch
    from tests.trials.simulation.batches import Batch
    from tests.trials.simulation.engine import PlannedBatch
    from tests.trials.simulation.files import Commit
    from tests.trials.simulation.groups_log import Key
    from tests.trials.simulation.world import Process, World

# The longest time that a request may wait for its response without faults, ms.
LONGEST_WAIT_MS = 30_000.0
# How the transaction identifiers begin under which a table records epochs.
_FENCE = "coordinator-epoch-"
_FENCED_TABLES = frozenset(table.name for table in WRITTEN)
# How long a group remembers a request: `request.dedup.window.ms`.
_WINDOW_MS = CoordinatorSettings().request_dedup_window_ms


class _Asked(Struct):
    """A request in the table, the time of its commit (true ms), and its number of rows.

    `table` is the number of the table of requests; each replacement has the next number.
    """

    event: RequestEvent
    at: float
    rows: int = 1
    table: int = 0


class _Decider(Struct, frozen=True):
    """The decider of a request: its streaming checkpoint, and its claim of the partition."""

    query_id: str | None
    epoch: int


class Observer:
    """A checker of every commit; `on_answer` gets each response. Stops at the first violation."""

    def __init__(
        self, world: World, num_partitions: int, on_answer: Callable[[Response], None]
    ) -> None:
        self.cluster = ClusterState()
        self.asked: dict[str, _Asked] = {}
        self.answered: dict[str, Response] = {}
        self._world = world
        self._num_partitions = num_partitions
        self._on_answer = on_answer
        self._batches = Batches()
        self._log = GroupsLog(world)
        self._sessions = Sessions(world, self._batches)
        self._decided: dict[Batch, tuple[dict[str | None, bytes], dict[int, int]]] = {}
        self._landed: set[Batch] = set()
        self._deciders: dict[str, _Decider] = {}
        self._answered_at: dict[str, float] = {}
        self._again: set[str] = set()
        # The batch that recorded a request.
        self._recorded_by: dict[str, Batch | None] = {}
        # Requests that were passed to a producer, by id. Only the commits show which were written.
        self.sent: dict[str, RequestEvent] = {}
        # The time since which there are no faults, true ms; None while there are. And the longest
        # wait of a request since then, ms.
        self.calm_since: float | None = None
        self.longest_wait_ms = 0.0
        self._epochs: dict[Process, Epoch] = {}
        # The number of the present table of requests, of that which a process read when its query
        # began, and of that which a client has opened. And the requests that were lost with one.
        self.requests_table = 0
        self._read_table: dict[Process, int] = {}
        self._opened_table: dict[Process, int] = {}
        self._lost: set[str] = set()
        # Whether the topic was ever deleted.
        self._is_topic_deleted = False
        # The epoch that a table records for each node, by the node's transaction identifier.
        self._fences: dict[tuple[str, str], int] = {}

    # --- what happens -----------------------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """Take in a commit that has just been created."""
        batch = self._batches.of_transactions(commit.transactions)
        if batch is not None:
            self._landed.add(batch)
            self._sessions.judge(lambda each: each[0] == batch[0] and each[1] < batch[1])
        self._check_fence(commit)
        if commit.rows is None or not commit.rows.num_rows:
            return
        rows = _dense(commit.rows)
        if commit.table == REQUESTS.name:
            self._check_opened(commit.writer)
            self._take_requests(rows)
        elif commit.table == TOPICS.name:
            # A column without any value is left out.
            counts = rows.to_pylist()
            self._is_topic_deleted |= any(each.get("partitions") is None for each in counts)
        elif commit.table == RESPONSES.name:
            self._check_read(commit.writer, rows)
            self._take_responses(batch, rows)
        elif commit.table == OFFSETS_TOPIC.name:
            self._take_records(batch, rows)
        elif commit.table == GROUP_EVENTS.name:
            self._take_events(batch, rows)
        elif commit.table == COORDINATORS.name:
            self._take_decisions(rows)
        elif commit.table == REJECTED_REQUESTS.name:
            self._world.count("rejected", rows.num_rows)

    # --- tables that are replaced -----------------------------------------------------------------

    def opened_requests(self, process: Process) -> None:
        """Learn that a client has opened the table of requests."""
        self._opened_table[process] = self.requests_table

    def requests_away(self) -> None:
        """Record that requests cannot be read from now on."""
        self._sessions.unreadable()

    def requests_back(self) -> None:
        """Record that requests can be read again."""
        self._sessions.readable()

    def standing(self) -> frozenset[str]:
        """Return the requests that are in the table now."""
        return frozenset(self.asked.keys() - self._lost)

    def replaced_requests(self, kept: frozenset[str]) -> list[str]:
        """Record that `requests` was replaced and has only the `kept`; return the lost ones.

        A lost request may still be answered, once, by a coordinator that has read it.
        """
        self.requests_table += 1
        lost = [each for each in self.waiting() if each not in kept]
        self._lost.update(lost)
        for request_id in lost:
            self._sessions.lost(request_id)
        self._world.count("requests lost with their table", len(lost))
        return lost

    def brought_back_requests(self, kept: frozenset[str]) -> list[str]:
        """Record that the previous table of requests is back, after another one in its place.

        Processes that followed the previous table may continue.
        """
        present = self.requests_table
        lost = self.replaced_requests(kept)
        for tables in (self._read_table, self._opened_table):
            tables.update(
                {each: present + 1 for each, number in tables.items() if number == present}
            )
        return lost

    def follows_requests(self, process: Process) -> bool:
        """Whether a process follows a table of requests."""
        return process in self._read_table

    def _check_opened(self, writer: Process) -> None:
        if writer not in self._opened_table:
            return
        self._world.check(REPLACED)
        if self._opened_table[writer] != self.requests_table:
            self._world.violate(
                REPLACED, f"{writer.name} wrote into a table of requests that it had not opened"
            )

    def _check_read(self, writer: Process, rows: pa.Table) -> None:
        """Check that a process of an older table answers no request of the present one."""
        number = self._read_table.get(writer)
        if number is None or number == self.requests_table:
            return
        for request_id in rows.column("request_id").to_pylist():
            self._world.check(REPLACED)
            asked = self.asked.get(request_id)
            if asked is not None and asked.table > number:
                self._world.violate(
                    REPLACED,
                    f"{writer.name} answered {request_id!r} of a table of requests that was made "
                    "after it had begun with another one",
                )

    def _check_fence(self, commit: Commit) -> None:
        """Check that a process writes only before its epoch's fence in the table's log."""
        for app_id, version in commit.transactions.items():
            if app_id.startswith(_FENCE):
                before = self._fences.get((commit.table, app_id), version)
                self._fences[commit.table, app_id] = max(before, version)
        epoch = self._epochs.get(commit.writer)
        if epoch is None or commit.rows is None or commit.table not in _FENCED_TABLES:
            return
        self._world.check(FENCED)
        latest = self._fences.get((commit.table, epoch.app_id), epoch.number)
        if latest > epoch.number:
            self._world.violate(
                FENCED,
                f"{commit.writer.name} of epoch {epoch.number} wrote to {commit.table!r}, which "
                f"epoch {latest} had fenced",
            )

    def on_query(self, query_id: str, process: Process, epoch: Epoch) -> None:
        """Learn which process a query writes for, and in which epoch."""
        self._batches.begun(query_id, process.name, epoch.node_id)
        self._epochs[process] = epoch
        self._read_table[process] = self.requests_table

    def on_planned(self, query_id: str, batch: PlannedBatch, read_at: float) -> None:
        """Learn when a batch looked for requests, true ms."""
        self._batches.planned(query_id, batch, read_at)

    def on_decided(
        self, query_id: str, planned: PlannedBatch, outputs: dict[str | None, bytes]
    ) -> None:
        """Check that a batch that had written something decides the same when it is run again.

        This holds for groups of partitions with an unchanged claim. Requests of other groups may
        have been answered by another coordinator meanwhile.
        """
        batch = (query_id, planned.batch_id)
        claims = {number: state.epoch for number, state in self.cluster.partitions.items()}
        before, claims_before = self._decided.get(batch, (outputs, claims))
        if batch in self._landed:
            for group_id in sorted({*before, *outputs}, key=repr):
                partition = partition_for(group_id or "", self._num_partitions)
                if claims.get(partition) != claims_before.get(partition):
                    continue
                self._world.check(SAME_AGAIN)
                if before.get(group_id) != outputs.get(group_id):
                    self._world.violate(
                        SAME_AGAIN,
                        f"batch {batch[1]} was run again and decided otherwise for {group_id!r} "
                        "than the run of which something is written",
                    )
        self._decided[batch] = (outputs, claims)
        for output in outputs.values():
            self._world.note(output)

    # --- tables -----------------------------------------------------------------------------------

    def _take_requests(self, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            request_id = row.get("request_id")
            if request_id in self.asked:
                self.asked[request_id].rows += 1
                continue
            event = self.sent.get(request_id)
            if event is None or event.group_id is None:
                continue
            self.asked[request_id] = _Asked(event, self._world.now, table=self.requests_table)
            self._sessions.asked(event, self._world.now)

    def _take_responses(self, batch: Batch | None, rows: pa.Table) -> None:
        for response in from_arrow(Response, rows):
            self._take_response(batch, response)
        self._sessions.judge(lambda each: each == batch)

    def _take_response(self, batch: Batch | None, response: Response) -> None:
        request_id = response.request_id
        asked = self.asked.get(request_id)
        if asked is None:
            self._world.violate(ANSWERED_ONCE, f"{request_id!r} was answered, and never asked")
            return
        self._world.count("answers")
        self._world.check(ANSWERED_ONCE)
        decider = self._decider(batch, response.group_id)
        if request_id in self.answered:
            before = self.answered[request_id]
            late = (response.responded_at or 0) - (before.responded_at or 0) > _WINDOW_MS
            late = late or self._world.now - self._answered_at[request_id] > _WINDOW_MS
            moved = DECIDED[asked.event.api].is_repeatable and decider != self._deciders[request_id]
            if asked.rows > 1 and (late or moved):
                # A group remembers requests for the window; of reads and heartbeats, which may be
                # decided twice, nothing moves with it.
                self._world.count("repeated after the window, or a read after a move")
                self._again.add(request_id)
                return
            self._world.violate(
                ANSWERED_ONCE,
                f"{response.api} {request_id!r} of {response.group_id!r} was answered twice: "
                f"{before.error}, then {response.error}",
            )
        self.answered[request_id] = response
        self._deciders[request_id] = decider
        self._answered_at[request_id] = self._world.now
        # A join may be answered in a later batch than the one that recorded its group.
        if response.join_group is None and self._recorded_by.get(request_id, batch) != batch:
            self._world.count("answers by records")
        self._check_wait(response, asked)
        self._check_owner(batch, response.group_id, "an answer")
        self._world.note(
            "answer", request_id, response.error_code, _generation(response), response.responded_at
        )
        self._log.check_answer(batch, asked.event, response)
        self._sessions.answered(batch, asked.event, response)
        self._on_answer(response)

    def _check_wait(self, response: Response, asked: _Asked) -> None:
        """Check how long a request waited for its response, if there are no more faults."""
        if self.calm_since is None:
            return
        self._world.check(ANSWERED_SOON)
        waited_ms = self._world.now - max(asked.at, self.calm_since)
        self.longest_wait_ms = max(self.longest_wait_ms, waited_ms)
        if waited_ms > LONGEST_WAIT_MS:
            self._world.violate(
                ANSWERED_SOON,
                f"{response.api} {response.request_id!r} of {response.group_id!r} was answered "
                f"{waited_ms:.0f} ms after it was asked and the last fault had ended",
            )

    def _decider(self, batch: Batch | None, group_id: str) -> _Decider:
        state = self.cluster.partitions.get(partition_for(group_id, self._num_partitions))
        return _Decider(
            None if batch is None else batch[0], NO_EPOCH if state is None else state.epoch
        )

    def _take_records(self, batch: Batch | None, rows: pa.Table) -> None:
        for record in from_arrow(CoordinatorRecord, rows):
            self._world.count("records")
            self._check_owner(batch, record.group_id, "a record")
            if record.partition != partition_for(record.group_id, self._num_partitions):
                self._world.violate(
                    ONE_OWNER,
                    f"a record of {record.group_id!r} is in partition {record.partition}",
                )
            self._check_recorded(batch, record)
            self._log.take(batch, record)
            self._world.note(
                "record", record.partition, record.log_offset, record.group_id, record.request_id
            )

    def _check_recorded(self, batch: Batch | None, record: CoordinatorRecord) -> None:
        """Check that a new decider of a recorded request answers it without new records."""
        request_id = record.request_id
        if record.record_type == OFFSET_COMMIT and record.offset_commit is None:
            self._check_deleted(record)
        if request_id is None or request_id in self.answered or request_id in self._lost:
            return
        self._world.check(RECORDED_ONCE)
        if self._recorded_by.setdefault(request_id, batch) != batch:
            self._world.violate(
                RECORDED_ONCE,
                f"{request_id!r} of {record.group_id!r} was recorded again before its answer",
            )

    def _check_deleted(self, record: CoordinatorRecord) -> None:
        """Check that an offset is deleted by a request, or because its topic was deleted."""
        self._world.check(REPLACED)
        if record.request_id is None and not self._is_topic_deleted:
            self._world.violate(
                REPLACED,
                f"an offset of {record.group_id!r} was deleted that nobody asked to delete, and "
                "whose topic was not deleted",
            )

    def _take_events(self, batch: Batch | None, rows: pa.Table) -> None:
        for event in from_arrow(GroupEvent, rows):
            self._check_owner(batch, event.group_id, "an event")
            self._world.count(f"events: {event.event}")
            if event.event == "loaded":
                self._sessions.loaded(event.group_id)
                self._log.loaded(event.group_id)
            if event.event == "handler_failed":
                self._world.violate(NO_BUG, f"a handler failed: {event.reason}")
            reason = event.reason or ""
            if event.to_state == "CompletingRebalance":
                self._sessions.elected(batch, event.group_id)
            if event.event == "member_expired" and reason.startswith("session of"):
                self._sessions.expired(batch, event)

    def _take_decisions(self, rows: pa.Table) -> None:
        events = from_arrow(CoordinatorEvent, rows)
        self.cluster = fold(self.cluster, events)
        self._world.tell(_told(events))
        for event in events:
            self._world.count(f"decisions: {event.event}")
            self._world.note("decision", event.epoch, event.event, event.node_id, event.partition)

    def _check_owner(self, batch: Batch | None, group_id: str, what: str) -> None:
        """Check that the owner of a partition writes the rows of its groups."""
        if batch is None:
            return
        self._world.check(ONE_OWNER)
        process, node_id = self._batches.writer_of(batch)
        partition = partition_for(group_id, self._num_partitions)
        state = self.cluster.partitions.get(partition)
        owner = None if state is None else state.owner
        if owner != node_id:
            self._world.violate(
                ONE_OWNER,
                f"{process} wrote {what} of {group_id!r}, whose partition {partition} is "
                f"node {owner}'s",
            )

    # --- when all is quiet ------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """Return the requests that are in the table and have no response."""
        return [
            request_id
            for request_id in self.asked
            if request_id not in self.answered and request_id not in self._lost
        ]

    def check_tables(self, newest: dict[Key, int], answers: dict[str, int]) -> None:
        """Check the tables at the end against the observed commits."""
        self._log.check_table(newest)
        self.check_answers("the table has", answers)

    def check_answers(self, where: str, answers: Mapping[str, int]) -> None:
        """See that there is one answer to each request."""
        for request_id in self.asked:
            self._world.check(ANSWERED_ONCE)
            if not answers.get(request_id) and request_id in self._lost:
                continue
            if answers.get(request_id) != 1 and request_id not in self._again:
                self._world.violate(
                    ANSWERED_ONCE,
                    f"{where} {answers.get(request_id, 0)} answers to {request_id!r}",
                )


def _told(events: list[CoordinatorEvent]) -> str:
    """Return a decision as a line of the log."""
    first = events[0]
    partitions = ", ".join(str(e.partition) for e in events if e.partition is not None)
    to_node = "" if first.to_node is None else f" to node {first.to_node}"
    return f"epoch {first.epoch}: node {first.node_id} {first.event} {partitions}{to_node}"


def _dense(rows: pa.Table) -> pa.Table:
    """Return the columns that are not empty."""
    names = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if column.null_count < len(rows)
    ]
    return rows.select(names)


def _generation(response: Response) -> int | None:
    return None if response.join_group is None else response.join_group.generation_id
