"""The log of each group in the offsets topic, and checks of responses against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.schemas.records import GROUP_METADATA, OFFSET_COMMIT
from tests.trials.simulation.promises import (
    COMMITTED,
    GENERATION_FENCED,
    GENERATIONS_RISE,
    OFFSETS_RISE,
    RECORD_FIRST,
)

if TYPE_CHECKING:
    from group_coordinator.schemas.messages import RequestEvent, Response
    from group_coordinator.schemas.records import CoordinatorRecord
    from tests.trials.simulation.batches import Batch
    from tests.trials.simulation.world import World

NO_OFFSET = -1
# A committed offset's group, topic and partition.
Key = tuple[str, str, int]


class _Told(NamedTuple):
    """A group's generation, the batch that returned it, and the generation before that batch."""

    generation: int
    batch: Batch | None
    before: int


class GroupsLog:
    """The records in the order of their commits, and the resulting state of each group."""

    def __init__(self, world: World) -> None:
        self._world = world
        # The newest committed offset of each key that has one: of a tombstone's key there is none.
        self._offsets: dict[Key, int] = {}
        # The values that a key had in the course of the batch that last wrote it.
        self._values: dict[Key, tuple[Batch | None, set[int]]] = {}
        # The offsets that each commit wrote, by its request.
        self._recorded: dict[str, dict[tuple[str, int], int]] = {}
        self._generations: dict[str, int] = {}
        # A group's generation before the batch that last recorded one.
        self._generations_before: dict[str, tuple[Batch | None, int]] = {}
        # The generation that a group's members know, and the one before the batch that returned it.
        self._told: dict[str, _Told] = {}
        self._next_offset: dict[int, int] = {}
        # The batch that recorded a request, and its group's generation in the log before the batch.
        self._decided: dict[str, tuple[Batch | None, int]] = {}

    def take(self, batch: Batch | None, record: CoordinatorRecord) -> None:
        """Take in a record that has just been committed."""
        assert record.log_offset is not None
        self._world.check(OFFSETS_RISE)
        expected = self._next_offset.get(record.partition, 0)
        if record.log_offset < expected:
            self._world.violate(
                OFFSETS_RISE,
                f"log offset {record.log_offset} of partition {record.partition} was given out "
                "again",
            )
        self._next_offset[record.partition] = record.log_offset + 1
        value = record.group_metadata
        # A group without members is no answer of a join that made it.
        if record.request_id is not None and (value is None or value.members):
            recorded = self._recorded_before(batch, record.group_id)
            self._decided.setdefault(record.request_id, (batch, recorded))
        if record.record_type == OFFSET_COMMIT:
            self._take_offset(batch, record)
        elif record.record_type == GROUP_METADATA:
            self._take_group(batch, record)

    def _take_offset(self, batch: Batch | None, record: CoordinatorRecord) -> None:
        assert record.topic is not None
        assert record.topic_partition is not None
        key = (record.group_id, record.topic, record.topic_partition)
        before = self._offsets.get(key, NO_OFFSET)
        last, values = self._values.get(key, (None, set()))
        if last is None or last != batch:
            values = {before}
        if record.offset_commit is None:
            self._offsets.pop(key, None)
            values.add(NO_OFFSET)
        else:
            self._offsets[key] = record.offset_commit.offset
            values.add(record.offset_commit.offset)
            if record.request_id is not None:
                written = self._recorded.setdefault(record.request_id, {})
                written[record.topic, record.topic_partition] = record.offset_commit.offset
        self._values[key] = (batch, values)

    def _take_group(self, batch: Batch | None, record: CoordinatorRecord) -> None:
        value = record.group_metadata
        last, _ = self._generations_before.get(record.group_id, (None, 0))
        if last is None or last != batch:
            present = self._generations.get(record.group_id, 0)
            self._generations_before[record.group_id] = batch, present
        self._tell(batch, record.group_id, 0 if value is None else value.generation)
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

    def _tell(self, batch: Batch | None, group_id: str, generation: int) -> None:
        last = self._told.get(group_id, _Told(0, None, 0))
        before = last.before if last.batch == batch else last.generation
        self._told[group_id] = _Told(generation, batch, before)

    def _recorded_before(self, batch: Batch | None, group_id: str) -> int:
        """Return a group's generation in the log before a batch, which may end the generation."""
        last, recorded = self._generations_before.get(group_id, (None, 0))
        if last is None or last != batch:
            return self._generations.get(group_id, 0)
        return recorded

    def loaded(self, group_id: str) -> None:
        """Reset a loaded group to the generation of its log.

        A generation that the previous coordinator returned but did not record is lost, as in Kafka.
        """
        recorded = self._generations.get(group_id, 0)
        self._told[group_id] = _Told(recorded, None, recorded)

    def check_answer(self, batch: Batch | None, event: RequestEvent, response: Response) -> None:
        """Hold an answer that has just been committed against the log."""
        if response.offset_commit is not None and event.offset_commit is not None:
            self._check_generation(batch, event, response)
            self._check_commit(event, response)
        elif response.offset_fetch is not None and not response.error_code:
            self._check_fetch(batch, event, response)
        elif response.join_group is not None and not response.error_code:
            _, recorded = self._decided.get(
                response.request_id, (batch, self._recorded_before(batch, response.group_id))
            )
            self._tell(batch, response.group_id, response.join_group.generation_id)
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

    def _check_generation(
        self, batch: Batch | None, event: RequestEvent, response: Response
    ) -> None:
        """No member commits in a generation that was over before the batch of its answer."""
        assert response.offset_commit is not None
        assert event.offset_commit is not None
        generation = event.offset_commit.generation_id
        if generation is None or generation < 0:
            return
        told = self._told.get(response.group_id, _Told(0, None, 0))
        newest = told.before if told.batch == batch else told.generation
        decided_in, recorded = self._decided.get(response.request_id, (batch, 0))
        if decided_in != batch:
            # Another coordinator recorded it, and was killed before it answered.
            newest = min(newest, recorded)
        self._world.check(GENERATION_FENCED)
        if generation >= newest:
            return
        if any(
            not partition.error_code
            for topic in response.offset_commit.topics
            for partition in topic.partitions
        ):
            self._world.violate(
                GENERATION_FENCED,
                f"commit {response.request_id!r} of {response.group_id!r} was accepted in "
                f"generation {generation}, after {newest} had begun",
            )
        self._world.count("stale commits")

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
        """Check that a fetch returns the committed offset: the log's before or within its batch."""
        assert response.offset_fetch is not None
        found = {
            (response.group_id, topic.name, partition.partition_index): partition.committed_offset
            for topic in response.offset_fetch.topics
            for partition in topic.partitions
        }
        if event.offset_fetch is not None and event.offset_fetch.topics is None:
            for key in self._offsets:
                if key[0] == response.group_id:
                    found.setdefault(key, NO_OFFSET)
        for key, offset in found.items():
            self._world.check(COMMITTED)
            last, values = self._values.get(key, (None, set()))
            newest = self._offsets.get(key, NO_OFFSET)
            allowed = values if last is not None and last == batch else {newest}
            if offset not in allowed:
                self._world.violate(
                    COMMITTED,
                    f"fetch {response.request_id!r} of {key} returned {offset}; the log says "
                    f"{sorted(allowed)}",
                )

    def check_table(self, newest: dict[Key, int]) -> None:
        """Check the table at the end against the observed commits."""
        for key in sorted({*newest, *self._offsets}):
            self._world.check(COMMITTED)
            found, seen = newest.get(key, NO_OFFSET), self._offsets.get(key, NO_OFFSET)
            if found != seen:
                self._world.violate(
                    COMMITTED, f"the log has {found} for {key}; {seen} was committed"
                )
