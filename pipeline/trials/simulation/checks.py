"""What must hold of a root after every commit, and once all is quiet.

An observer sees every commit the moment it stands. It keeps the log of each group as the offsets
topic tells it, and holds every answer against that log. It knows what was asked, and when, from the
commits to `requests`; it asks the code under test nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from coordinator.group.dedup import IDEMPOTENT
from coordinator.group.partition import partition_for
from coordinator.ownership import NO_EPOCH, ClusterState, fold
from pipeline.settings import CoordinatorSettings
from pipeline.trials.simulation.world import NO_BUG
from schemas.messages import RequestEvent, Response
from schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorEvent,
    GroupEvent,
    Record,
)
from schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    from_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.trials.simulation.engine import PlannedBatch
    from pipeline.trials.simulation.files import Commit
    from pipeline.trials.simulation.world import World

# The promises.
ANSWERED_ONCE = "every request is answered exactly once"
COMMITTED = "what was acknowledged as committed is what a fetch returns and what the log replays to"
RECORD_FIRST = "no answer is there before its record"
OFFSETS_RISE = "log offsets of a partition rise, and none is given out again"
GENERATIONS_RISE = "a group's generation never falls"
SESSIONS = "no member is given up within its session"
ONE_OWNER = "a partition has one owner"
SAME_AGAIN = "a batch that is run again decides as before"

ONE_MEMBER = "in a generation a partition is one member's"
PROMISES = frozenset(
    {
        ANSWERED_ONCE,
        COMMITTED,
        RECORD_FIRST,
        OFFSETS_RISE,
        GENERATIONS_RISE,
        SESSIONS,
        ONE_OWNER,
        SAME_AGAIN,
        ONE_MEMBER,
        NO_BUG,
    }
)

NO_OFFSET = -1
# How long a group remembers a request: `request.dedup.window.ms`.
_WINDOW_MS = CoordinatorSettings().request_dedup_window_ms
# A batch of a query: the query's id and the batch's number.
Batch = tuple[str, int]
Key = tuple[str, str, int]


class _Asked(Struct):
    """A request as it stands in the table: when its first row was committed, and how many rows."""

    event: RequestEvent
    at: float
    rows: int = 1


class _Decider(Struct, frozen=True):
    """Who decided a request: the streaming checkpoint, and the claim of the group's partition."""

    query_id: str | None
    epoch: int


class _Renewal(Struct, frozen=True):
    """When a member was last heard of: in which batch, and when that read, true ms.

    `elapsed_ms` is how far the coordinator's clock had gone by then, steps back left out.
    """

    process: str
    query_id: str
    batch_time: int
    elapsed_ms: int
    read_at: float


class _Expiry(Struct, frozen=True):
    """A member that expired in a batch, and its heartbeats that were there when it was planned."""

    group_id: str
    member_id: str
    batch: Batch
    waiting: frozenset[str]


class Observer:
    """Sees every commit; `on_answer` is told of each answer. Breaks off at the first violation."""

    def __init__(
        self, world: World, num_partitions: int, on_answer: Callable[[Response], None]
    ) -> None:
        self.cluster = ClusterState()
        self.asked: dict[str, _Asked] = {}
        self.answered: dict[str, Response] = {}
        # The newest committed offset of each key that has one: of a tombstone's key there is none.
        self.offsets: dict[Key, int] = {}
        self._world = world
        self._num_partitions = num_partitions
        self._on_answer = on_answer
        self._next_offset: dict[int, int] = {}
        self._generations: dict[str, int] = {}
        # What a group's generation was before the batch that last recorded one.
        self._generations_before: dict[str, tuple[Batch | None, int]] = {}
        self._recorded: dict[str, dict[tuple[str, int], int]] = {}
        # The values that a key had in the course of the batch that last wrote it.
        self._values: dict[Key, tuple[Batch | None, set[int]]] = {}
        self._writers: dict[str, tuple[str, int]] = {}
        self._read_at: dict[Batch, float] = {}
        # How far a query's batch times had gone by a batch, steps back left out, and its time.
        self._elapsed: dict[Batch, tuple[int, int]] = {}
        self._decided: dict[Batch, tuple[dict[str | None, bytes], dict[int, int]]] = {}
        self._landed: set[Batch] = set()
        self._deciders: dict[str, _Decider] = {}
        self._answered_at: dict[str, float] = {}
        self._again: set[str] = set()
        self._answered_in: dict[str, Batch | None] = {}
        self._renewed: dict[tuple[str, str], _Renewal] = {}
        # In which batch a group's members were last all given a new generation.
        self._elected_in: dict[str, Batch | None] = {}
        self._open_by_member: dict[str, set[str]] = defaultdict(set)
        self._expiries: list[_Expiry] = []
        self._sessions: dict[str, int] = {}
        # What was handed to a producer, by its id: whether it was written, the commits say.
        self.sent: dict[str, RequestEvent] = {}

    # --- what happens -----------------------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """Take in a commit that has just been created."""
        batch = self._batch_of(commit)
        if batch is not None:
            self._landed.add(batch)
            self._judge_expiries(lambda each: each[0] == batch[0] and each[1] < batch[1])
        if commit.rows is None or not commit.rows.num_rows:
            return
        rows = _dense(commit.rows)
        if commit.table == REQUESTS.name:
            self._take_requests(rows)
        elif commit.table == RESPONSES.name:
            self._take_responses(batch, rows)
        elif commit.table == OFFSETS_TOPIC.name:
            self._take_records(batch, rows)
        elif commit.table == GROUP_EVENTS.name:
            self._take_events(batch, rows)
        elif commit.table == COORDINATORS.name:
            self._take_decisions(rows)
        elif commit.table == REJECTED_REQUESTS.name:
            self._world.count("rejected", rows.num_rows)

    def _batch_of(self, commit: Commit) -> Batch | None:
        for app_id, version in commit.transactions.items():
            if app_id in self._writers:
                return app_id, version
        return None

    def on_query(self, query_id: str, process: str, node_id: int) -> None:
        """Learn which process a query writes for."""
        self._writers[query_id] = (process, node_id)

    def on_planned(self, query_id: str, batch: PlannedBatch, read_at: float) -> None:
        """Learn when a batch looked for requests, true ms."""
        self._read_at[query_id, batch.batch_id] = read_at
        elapsed, time_ms = self._elapsed.get((query_id, batch.batch_id - 1), (0, batch.time_ms))
        elapsed += max(0, batch.time_ms - time_ms)
        self._elapsed[query_id, batch.batch_id] = elapsed, batch.time_ms

    def on_decided(
        self, query_id: str, planned: PlannedBatch, outputs: dict[str | None, bytes]
    ) -> None:
        """See that a batch that is run again, and had written something, decides the same.

        That is so for the groups of partitions whose claim is still the same: what another
        coordinator has had since, it has answered.
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
            self.asked[request_id] = _Asked(event, self._world.now)
            member_id = _member_of(event)
            if member_id:
                self._open_by_member[member_id].add(request_id)

    def _take_responses(self, batch: Batch | None, rows: pa.Table) -> None:
        for response in from_arrow(Response, rows):
            self._take_response(batch, response)
        self._judge_expiries(lambda each: each == batch)

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
            moved = asked.event.api in IDEMPOTENT and decider != self._deciders[request_id]
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
        self._answered_in[request_id] = batch
        self._check_owner(batch, response.group_id, "an answer")
        event = asked.event
        member_id = _member_of(event)
        if member_id:
            self._open_by_member[member_id].discard(request_id)
        self._world.note(
            "answer", request_id, response.error_code, _generation(response), response.responded_at
        )
        self._check_answer(batch, event, response)
        self._remember_renewal(batch, event, response)
        self._on_answer(response)

    def _decider(self, batch: Batch | None, group_id: str) -> _Decider:
        state = self.cluster.partitions.get(partition_for(group_id, self._num_partitions))
        return _Decider(
            None if batch is None else batch[0], NO_EPOCH if state is None else state.epoch
        )

    def _take_records(self, batch: Batch | None, rows: pa.Table) -> None:
        for record in from_arrow(Record, rows):
            self._world.count("records")
            partition, offset = record.partition, record.log_offset
            assert offset is not None
            self._check_owner(batch, record.group_id, "a record")
            self._world.check(OFFSETS_RISE)
            expected = self._next_offset.get(partition, 0)
            if offset < expected:
                self._world.violate(
                    OFFSETS_RISE,
                    f"log offset {offset} of partition {partition} was given out again",
                )
            self._next_offset[partition] = offset + 1
            if partition != partition_for(record.group_id, self._num_partitions):
                self._world.violate(
                    ONE_OWNER, f"a record of {record.group_id!r} is in partition {partition}"
                )
            if record.record_type == OFFSET_COMMIT:
                self._take_offset(batch, record)
            elif record.record_type == GROUP_METADATA:
                self._take_group(batch, record)
            self._world.note("record", partition, offset, record.group_id, record.request_id)

    def _take_offset(self, batch: Batch | None, record: Record) -> None:
        assert record.topic is not None
        assert record.topic_partition is not None
        key = (record.group_id, record.topic, record.topic_partition)
        before = self.offsets.get(key, NO_OFFSET)
        last, values = self._values.get(key, (None, set()))
        if last is None or last != batch:
            values = {before}
        if record.offset_commit is None:
            self.offsets.pop(key, None)
            values.add(NO_OFFSET)
        else:
            self.offsets[key] = record.offset_commit.offset
            values.add(record.offset_commit.offset)
            if record.request_id is not None:
                written = self._recorded.setdefault(record.request_id, {})
                written[record.topic, record.topic_partition] = record.offset_commit.offset
        self._values[key] = (batch, values)

    def _take_group(self, batch: Batch | None, record: Record) -> None:
        value = record.group_metadata
        last, _ = self._generations_before.get(record.group_id, (None, 0))
        if last is None or last != batch:
            present = self._generations.get(record.group_id, 0)
            self._generations_before[record.group_id] = batch, present
        if value is None:
            self._generations.pop(record.group_id, None)
            return
        before = self._generations.get(record.group_id, 0)
        self._world.check(GENERATIONS_RISE)
        if value.generation < before:
            self._world.violate(
                GENERATIONS_RISE,
                f"the generation of {record.group_id!r} fell from {before} to {value.generation}",
            )
        self._generations[record.group_id] = value.generation

    def _take_events(self, batch: Batch | None, rows: pa.Table) -> None:
        for event in from_arrow(GroupEvent, rows):
            self._check_owner(batch, event.group_id, "an event")
            self._world.count(f"events: {event.event}")
            if event.event == "loaded":
                self._forget_renewals(event.group_id)
            if event.event == "handler_failed":
                self._world.violate(NO_BUG, f"a handler failed: {event.reason}")
            reason = event.reason or ""
            if event.to_state == "CompletingRebalance":
                self._elected_in[event.group_id] = batch
            if event.event == "member_expired" and reason.startswith("session of"):
                self._take_expiry(batch, event)

    def _forget_renewals(self, group_id: str) -> None:
        """A group that is loaded has fresh sessions, by whatever clock its coordinator has."""
        for key in [key for key in self._renewed if key[0] == group_id]:
            del self._renewed[key]

    def _take_decisions(self, rows: pa.Table) -> None:
        events = from_arrow(CoordinatorEvent, rows)
        self.cluster = fold(self.cluster, events)
        self._world.tell(_told(events))
        for event in events:
            self._world.count(f"decisions: {event.event}")
            self._world.note("decision", event.epoch, event.event, event.node_id, event.partition)

    # --- promises ---------------------------------------------------------------------------------

    def _check_owner(self, batch: Batch | None, group_id: str, what: str) -> None:
        """One owner a partition: nobody else writes of its groups."""
        if batch is None:
            return
        self._world.check(ONE_OWNER)
        process, node_id = self._writers[batch[0]]
        partition = partition_for(group_id, self._num_partitions)
        state = self.cluster.partitions.get(partition)
        owner = None if state is None else state.owner
        if owner != node_id:
            self._world.violate(
                ONE_OWNER,
                f"{process} wrote {what} of {group_id!r}, whose partition {partition} is "
                f"node {owner}'s",
            )

    def _check_answer(self, batch: Batch | None, event: RequestEvent, response: Response) -> None:
        if response.offset_commit is not None and event.offset_commit is not None:
            self._check_commit(event, response)
        elif response.offset_fetch is not None and not response.error_code:
            self._check_fetch(batch, event, response)
        elif response.join_group is not None and not response.error_code:
            # A batch may answer a join, and end the generation after that: its records come first.
            last, recorded = self._generations_before.get(response.group_id, (None, 0))
            if last is None or last != batch:
                recorded = self._generations.get(response.group_id, 0)
            self._world.check(GENERATIONS_RISE)
            if response.join_group.generation_id < recorded:
                self._world.violate(
                    GENERATIONS_RISE,
                    f"{response.group_id!r} answered a join with generation "
                    f"{response.join_group.generation_id}, after {recorded} was recorded",
                )
        elif event.sync_group is not None and not response.error_code:
            recorded = self._generations.get(response.group_id, 0)
            self._world.check(RECORD_FIRST)
            if recorded < event.sync_group.generation_id:
                self._world.violate(
                    RECORD_FIRST,
                    f"a sync of generation {event.sync_group.generation_id} of "
                    f"{response.group_id!r} was answered before its record",
                )

    def _check_commit(self, event: RequestEvent, response: Response) -> None:
        """No acknowledgement before its record."""
        assert response.offset_commit is not None
        assert event.offset_commit is not None
        written = self._recorded.get(response.request_id, {})
        asked = {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in event.offset_commit.topics
            for partition in topic.partitions
        }
        for topic in response.offset_commit.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    continue
                self._world.check(RECORD_FIRST)
                place = (topic.name, partition.partition_index)
                if written.get(place) != asked[place]:
                    self._world.violate(
                        RECORD_FIRST,
                        f"commit {response.request_id!r} of {response.group_id!r} was acknowledged "
                        f"for {place} with {asked[place]}; its record has {written.get(place)}",
                    )

    def _check_fetch(self, batch: Batch | None, event: RequestEvent, response: Response) -> None:
        """A fetch returns what is committed: what the log says before or within its batch."""
        assert response.offset_fetch is not None
        found = {
            (response.group_id, topic.name, partition.partition_index): partition.committed_offset
            for topic in response.offset_fetch.topics
            for partition in topic.partitions
        }
        if event.offset_fetch is not None and event.offset_fetch.topics is None:
            for key in self.offsets:
                if key[0] == response.group_id:
                    found.setdefault(key, NO_OFFSET)
        for key, offset in found.items():
            self._world.check(COMMITTED)
            last, values = self._values.get(key, (None, set()))
            newest = self.offsets.get(key, NO_OFFSET)
            allowed = values if last is not None and last == batch else {newest}
            if offset not in allowed:
                self._world.violate(
                    COMMITTED,
                    f"fetch {response.request_id!r} of {key} returned {offset}; the log says "
                    f"{sorted(allowed)}",
                )

    # --- sessions ---------------------------------------------------------------------------------

    def _remember_renewal(
        self, batch: Batch | None, event: RequestEvent, response: Response
    ) -> None:
        join = event.join_group
        if response.error_code or batch is None or response.responded_at is None:
            return
        member_id = _member_of(event)
        if join is not None and response.join_group is not None:
            member_id = response.join_group.member_id
            self._sessions[member_id] = join.session_timeout_ms
            # A join that is answered with the present generation renews nothing, in Kafka too.
            if self._elected_in.get(response.group_id) != batch:
                return
        # In Kafka 4.1 a sync to a stable group renews nothing.
        if member_id and response.api in ("join_group", "heartbeat"):
            process, _ = self._writers[batch[0]]
            elapsed_ms, batch_time = self._elapsed[batch]
            self._renewed[response.group_id, member_id] = _Renewal(
                process, batch[0], batch_time, elapsed_ms, self._read_at[batch]
            )

    def _take_expiry(self, batch: Batch | None, event: GroupEvent) -> None:
        """No member is given up within its session, by its coordinator's batch times.

        A clock that is set back makes nobody's session longer: true time tells as well.
        """
        assert event.member_id is not None
        assert batch is not None
        process, _ = self._writers[batch[0]]
        session_ms = self._sessions.get(event.member_id)
        renewed = self._renewed.get((event.group_id, event.member_id))
        read_at = self._read_at[batch]
        self._world.check(SESSIONS)
        if session_ms is not None and renewed is not None and renewed.process == process:
            by_clock = event.at - renewed.batch_time
            if renewed.query_id == batch[0]:
                by_clock = self._elapsed[batch][0] - renewed.elapsed_ms
            silent_ms = max(by_clock, read_at - renewed.read_at)
            if silent_ms < session_ms:
                self._world.violate(
                    SESSIONS,
                    f"member {event.member_id} of {event.group_id!r} expired {silent_ms:.0f} ms "
                    f"after it was heard of, within its session of {session_ms} ms",
                )
        waiting = frozenset(
            request_id
            for request_id in self._open_by_member[event.member_id]
            if self._waits(request_id, event.group_id, read_at)
        )
        self._expiries.append(_Expiry(event.group_id, event.member_id, batch, waiting))

    def _waits(self, request_id: str, group_id: str, since: float) -> bool:
        asked = self.asked[request_id]
        beat = asked.event.heartbeat is not None and asked.event.group_id == group_id
        return beat and asked.at < since

    def _judge_expiries(self, is_over: Callable[[Batch], bool]) -> None:
        """No member expires in a batch while a heartbeat of its waits that was there before it."""
        for expiry in [each for each in self._expiries if is_over(each.batch)]:
            self._expiries.remove(expiry)
            for request_id in sorted(expiry.waiting):
                if self._answered_in.get(request_id) != expiry.batch:
                    ago = self._read_at[expiry.batch] - self.asked[request_id].at
                    self._world.violate(
                        SESSIONS,
                        f"member {expiry.member_id} of {expiry.group_id!r} expired in batch "
                        f"{expiry.batch[1]}, which read the requests {ago:.0f} ms after its "
                        f"heartbeat {request_id!r} was written, and did not take it",
                    )

    # --- when all is quiet ------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """The requests that stand in the table and were not answered."""
        return [request_id for request_id in self.asked if request_id not in self.answered]

    def check_tables(self, newest: dict[Key, int], answers: dict[str, int]) -> None:
        """Hold what the tables say in the end against what was seen to be committed."""
        for key in sorted({*newest, *self.offsets}):
            self._world.check(COMMITTED)
            found, seen = newest.get(key, NO_OFFSET), self.offsets.get(key, NO_OFFSET)
            if found != seen:
                self._world.violate(
                    COMMITTED, f"the log has {found} for {key}; {seen} was committed"
                )
        self.check_answers("the table has", answers)

    def check_answers(self, where: str, answers: Mapping[str, int]) -> None:
        """See that there is one answer to each request."""
        for request_id in self.asked:
            self._world.check(ANSWERED_ONCE)
            if answers.get(request_id) != 1 and request_id not in self._again:
                self._world.violate(
                    ANSWERED_ONCE,
                    f"{where} {answers.get(request_id, 0)} answers to {request_id!r}",
                )


def _told(events: list[CoordinatorEvent]) -> str:
    """A decision as a line of the story."""
    first = events[0]
    partitions = ", ".join(str(e.partition) for e in events if e.partition is not None)
    to_node = "" if first.to_node is None else f" to node {first.to_node}"
    return f"epoch {first.epoch}: node {first.node_id} {first.event} {partitions}{to_node}"


def _dense(rows: pa.Table) -> pa.Table:
    """The columns in which there is something."""
    names = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if column.null_count < len(rows)
    ]
    return rows.select(names)


def _member_of(event: RequestEvent) -> str | None:
    body: Any = event.heartbeat or event.sync_group or event.join_group or event.offset_commit
    return None if body is None else body.member_id


def _generation(response: Response) -> int | None:
    return None if response.join_group is None else response.join_group.generation_id
