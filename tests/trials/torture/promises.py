"""The coordinator's promises, checked against the tables and the responses that clients got.

* Each request is answered exactly once.
* An acknowledged commit is a record, written once, and committed before its response.
* OffsetFetch returns what the offsets topic replays to, and no less than the acknowledged offset.
* Log offsets of an offsets partition rise; a group's generation and its offsets never fall.
* Only the owner of an offsets partition writes its records.
* A member does not expire within its session timeout after a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from group_coordinator.coordinator.ownership import CLAIMED, RELEASED
from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.records import GROUP_METADATA, OFFSET_COMMIT
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    RESPONSES,
    Table,
)
from tests.trials.torture.commits import Commit, CommitReader
from tests.trials.torture.load import SESSION_MS, Book, Key, Load

_ANSWERS_S = 120.0
_POLL_S = 0.2
# Between `sent_at` and the first batch that can see a request: the linger, a commit, and as much
# again on a busy machine.
_ON_ITS_WAY_MS = 3_000
_SHOWN = 5
_NEWEST = """
SELECT group_id, topic, topic_partition, arg_max(offset_commit.offset, log_offset)
FROM offsets_topic WHERE record_type = 'offset_commit' GROUP BY ALL
"""
_LAST_REQUEST = """
SELECT epoch_ms(max(sent_at)) FROM requests
WHERE ? IN (join_group.member_id, sync_group.member_id, heartbeat.member_id,
            offset_commit.member_id)
    AND epoch_ms(sent_at) <= ?
"""


class PromiseBroken(Failure):
    """Error for a broken promise; the message names it and the evidence."""


class Auditor:
    """Checks of every promise on the rows since the last check."""

    def __init__(self, root: str) -> None:
        self.answers: Counter[str] = Counter()
        self.records = 0
        self.expired = 0
        self.unknown_writers = 0
        # Expirations up to this time, ms, are no fault: requests could not be written before it.
        self.excused_until = 0
        self._root = root

        def reader(table: Table, *columns: str) -> CommitReader:
            return CommitReader(Path(table_uri(root, table)), columns)

        self._responses = reader(RESPONSES, "request_id", "api", "error_code")
        self._topic = reader(
            OFFSETS_TOPIC,
            *("partition", "record_type", "group_id", "log_offset", "topic", "topic_partition"),
            *("offset_commit", "group_metadata", "request_id"),
        )
        self._events = reader(GROUP_EVENTS, "at", "event", "group_id", "member_id", "reason")
        self._decisions = reader(COORDINATORS, "event", "node_id", "partition")
        # When each commit request became a record, and when it was acknowledged, ms.
        self._recorded: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self._written: set[tuple[str, Key]] = set()
        self._end: dict[int, int] = {}
        self._generations: dict[str, int] = {}
        self._offsets: dict[Key, int] = {}
        # The owners of each partition, with the start of the ownership (ms); None if it has no
        # owner.
        self._owners: dict[int, list[tuple[int, int | None]]] = {}

    def check(self, load: Load, writers: Mapping[str, int]) -> None:
        """Check all requests so far. Raises PromiseBroken.

        `writers` has the node of each query id.
        """
        with load.resting():
            self._await_answers()
            # Coordinators write the record before the response, so this reads the record of each
            # response.
            self._read_decisions()
            self._read_topic(writers)
            self._read_events()
            self._check_acknowledged()
            self._check_offsets(load)
        if load.book.problems:
            raise PromiseBroken("; ".join(load.book.problems))

    # --- answers ----------------------------------------------------------------------------------

    def _await_answers(self) -> None:
        rows = Catalog(self._root).query("SELECT DISTINCT request_id FROM requests").rows
        asked = {request_id for (request_id,) in rows}
        until = monotonic() + _ANSWERS_S
        while True:
            self._read_responses()
            waiting = asked - self.answers.keys()
            if not waiting:
                return
            if monotonic() > until:
                raise PromiseBroken(
                    f"{len(waiting)} requests are not answered after {_ANSWERS_S:.0f} s: "
                    f"{_some(waiting)}"
                )
            sleep(_POLL_S)

    def _read_responses(self) -> None:
        for commit in self._responses.read():
            for row in commit.rows:
                request_id = row["request_id"]
                self.answers[request_id] += 1
                if self.answers[request_id] > 1:
                    raise PromiseBroken(f"request {request_id} is answered twice")
                if row["api"] == "offset_commit" and row["error_code"] == 0:
                    self._acknowledged[request_id] = commit.at_ms

    def _check_acknowledged(self) -> None:
        for request_id, answered_ms in self._acknowledged.items():
            recorded_ms = self._recorded.pop(request_id, None)
            if recorded_ms is None:
                raise PromiseBroken(f"request {request_id} is acknowledged and no record")
            if recorded_ms > answered_ms:
                raise PromiseBroken(
                    f"request {request_id} is answered {recorded_ms - answered_ms} ms "
                    "before it is a record"
                )
        self._acknowledged.clear()

    # --- the offsets topic ------------------------------------------------------------------------

    def _read_topic(self, writers: Mapping[str, int]) -> None:
        for commit in self._topic.read():
            for row in commit.rows:
                self.records += 1
                self._check_place(row)
                if row["record_type"] == GROUP_METADATA:
                    self._check_generation(row)
                elif row["record_type"] == OFFSET_COMMIT:
                    self._check_commit(row, commit.at_ms)
            self._check_writer(commit, writers)

    def _check_place(self, row: dict[str, Any]) -> None:
        partition, offset = row["partition"], row["log_offset"]
        before = self._end.get(partition, -1)
        if offset <= before:
            raise PromiseBroken(f"partition {partition}: log offset {offset} after {before}")
        self._end[partition] = offset

    def _check_generation(self, row: dict[str, Any]) -> None:
        group_id, value = row["group_id"], row["group_metadata"]
        if value is None:
            self._generations.pop(group_id, None)
            return
        before = self._generations.get(group_id, 0)
        if value["generation"] < before:
            raise PromiseBroken(f"{group_id}: generation {value['generation']} after {before}")
        self._generations[group_id] = value["generation"]

    def _check_commit(self, row: dict[str, Any], at_ms: int) -> None:
        key = Key(row["group_id"], row["topic"], row["topic_partition"])
        if row["offset_commit"] is None:
            raise PromiseBroken(f"{key}: nobody deleted this offset")
        if (row["request_id"], key) in self._written:
            raise PromiseBroken(f"request {row['request_id']} is a record of {key} twice")
        self._written.add((row["request_id"], key))
        self._recorded[row["request_id"]] = at_ms
        offset, before = row["offset_commit"]["offset"], self._offsets.get(key, -1)
        if offset < before:
            raise PromiseBroken(f"{key}: offset {offset} after {before}")
        self._offsets[key] = offset

    def _check_offsets(self, load: Load) -> None:
        book = load.book
        replayed = {
            Key(group, topic, partition): offset
            for group, topic, partition, offset in Catalog(self._root).query(_NEWEST).rows
        }
        groups = {key.group_id for key in book.asked}
        for group_id in sorted(groups):
            answer = load.fetch(group_id)
            fetched = {
                Key(group_id, topic.name, each.partition_index): each.committed_offset
                for topic in (answer.offset_fetch.topics if answer.offset_fetch else ())
                for each in topic.partitions
            }
            wanted = {key: offset for key, offset in replayed.items() if key.group_id == group_id}
            if fetched != wanted:
                raise PromiseBroken(f"{group_id}: fetched {fetched}, replayed {wanted}")
        _check_told(book, replayed)

    # --- owners -----------------------------------------------------------------------------------

    def _read_decisions(self) -> None:
        for commit in self._decisions.read():
            for row in commit.rows:
                if row["event"] in (CLAIMED, RELEASED):
                    owner = row["node_id"] if row["event"] == CLAIMED else None
                    self._owners.setdefault(row["partition"], []).append((commit.at_ms, owner))

    def _check_writer(self, commit: Commit, writers: Mapping[str, int]) -> None:
        """Check that a commit's writer owned the partitions of its records when it wrote them.

        A commit's time is taken before the commit. A writer that was paused in between is fenced by
        its epoch, so its commit does not exist.
        """
        nodes = {writers[app_id] for app_id in commit.app_ids if app_id in writers}
        if not commit.rows:
            return
        if not nodes:
            self.unknown_writers += 1
            return
        for partition in {row["partition"] for row in commit.rows}:
            history = self._owners.get(partition, [])
            owner = next((who for since, who in reversed(history) if since <= commit.at_ms), None)
            if owner not in nodes:
                raise PromiseBroken(
                    f"version {commit.version} of the offsets topic: node {nodes} wrote to "
                    f"partition {partition}, which was owned by {owner}"
                )

    # --- members ----------------------------------------------------------------------------------

    def _read_events(self) -> None:
        for commit in self._events.read():
            for row in commit.rows:
                if row["event"] == "member_expired":
                    self.expired += 1
                    self._check_expired(row)

    def _check_expired(self, row: dict[str, Any]) -> None:
        at_ms = int(row["at"].timestamp() * 1000)
        if "session" not in (row["reason"] or "") or at_ms < self.excused_until:
            return
        heard = Catalog(self._root).query(_LAST_REQUEST, [row["member_id"], at_ms - _ON_ITS_WAY_MS])
        ((last_ms,),) = heard.rows
        if last_ms is not None and at_ms - last_ms < SESSION_MS:
            raise PromiseBroken(
                f"{row['group_id']}: {row['member_id']} is expired {at_ms - last_ms} ms after a "
                f"request, within its session of {SESSION_MS} ms"
            )


def _check_told(book: Book, replayed: Mapping[Key, int]) -> None:
    """Compare the committed offsets with those that clients sent and that were acknowledged."""
    for key, offset in book.acknowledged.items():
        if replayed.get(key, -1) < offset:
            raise PromiseBroken(f"{key}: {offset} is acknowledged, {replayed.get(key)} committed")
    for key, offset in replayed.items():
        if key in book.asked and offset > book.asked[key]:
            raise PromiseBroken(f"{key}: {offset} is committed, {book.asked[key]} was asked for")


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:_SHOWN])
