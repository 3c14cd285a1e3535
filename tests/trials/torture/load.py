"""Live clients, and the responses that they got, for comparison with the tables.

Committers commit to groups without members, each the numbers from 1 on to one partition, one commit
at a time. Members share a topic's partitions in groups, commit their progress, join and leave.
"""

from __future__ import annotations

import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    CoordinatorTimeoutError,
    RebalanceInProgressError,
    RetriableError,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.pipeline.client import GroupMember, ProducerSettings, RequestClient
from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    RequestEvent,
    Response,
)

COMMITTERS = 3
GROUPS = 2
MEMBERS = 2
TOPIC = "t"
PARTITIONS = 4
# Members heartbeat every 3 s; a session outlasts the wait for a response on a busy machine.
SESSION_MS = 12_000
# Longer than any outage: a client that gives up would hide a request that is never answered.
_ANSWER_MS = 300_000
_REST_S = 300.0
_ABANDON_S = 5.0
_PAUSE_S = 0.05
_STAY_S = (10.0, 40.0)
# Errors that a member gets in a rebalance, or while no coordinator runs; it continues.
_USUAL = (
    CommitFailedError,
    CoordinatorTimeoutError,
    RebalanceInProgressError,
    RetriableError,
)


class Key(NamedTuple):
    """A partition's offset in a group."""

    group_id: str
    topic: str
    partition: int


class Book:
    """Commits that clients sent, and those that were acknowledged, by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: dict[Key, int] = {}
        self.acknowledged: dict[Key, int] = {}
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def ask(self, key: Key, offset: int) -> None:
        """Record an offset before it is committed."""
        with self._lock:
            self.asked[key] = max(self.asked.get(key, 0), offset)
            self.counts["commits"] += 1

    def acknowledge(self, key: Key, offset: int) -> None:
        """Record a commit that was answered without an error."""
        with self._lock:
            self.acknowledged[key] = max(self.acknowledged.get(key, 0), offset)
            self.counts["acknowledged"] += 1

    def count(self, what: str) -> None:
        """Count an event that is not a problem."""
        with self._lock:
            self.counts[what] += 1

    def problem(self, text: str) -> None:
        """Record a broken promise that a client observed."""
        with self._lock:
            self.problems.append(text)


class _Gate:
    """Lets clients work while it is open, and can wait until none is at work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self._busy = 0

    @contextmanager
    def at_work(self) -> Iterator[bool]:
        """Hold off `close` for the block; false where the gate is closed: nothing is to be done."""
        with self._changed:
            enters = self._is_open
            self._busy += enters
        try:
            yield enters
        finally:
            with self._changed:
                self._busy -= enters
                self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Stop new work of clients, and wait for their work in progress; False after a timeout."""
        with self._changed:
            self._is_open = False
            return self._changed.wait_for(lambda: not self._busy, timeout_s)

    def open(self) -> None:
        """Let the clients work."""
        with self._changed:
            self._is_open = True


class Load:
    """The clients of a root, each in a thread, from construction until `stop`."""

    def __init__(self, root: str, seed: int) -> None:
        self.book = Book()
        self._root = root
        self._gate = _Gate()
        self._stopping = threading.Event()
        settings = ProducerSettings(delivery_timeout_ms=2 * _ANSWER_MS, max_block_ms=_ANSWER_MS)
        self._client = RequestClient(root, settings)
        self._threads = [
            self._thread(lambda n=n: self._committer(n))  # type: ignore[misc]
            for n in range(COMMITTERS)
        ]
        self._threads += [
            self._thread(lambda g=g, n=n: self._member(g, Random(f"{seed}/{g}/{n}")))  # type: ignore[misc]
            for g in range(GROUPS)
            for n in range(MEMBERS)
        ]

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                target()
            # An error cannot leave a client's thread, so it is reported and fails the trial.
            except Exception:
                self.book.problem(f"a client failed: {traceback.format_exc()}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Suspend commits for the block; members continue to heartbeat."""
        if not self._gate.close(_REST_S):
            self.book.problem(f"a commit was not answered within {_REST_S:.0f} s")
        try:
            yield
        finally:
            self._gate.open()

    def fetch(self, group_id: str) -> Response:
        """Ask for all committed offsets of a group. Raises NoAnswer."""
        return self._ask(group_id, "offset_fetch", offset_fetch=OffsetFetchRequest(None))

    def stop(self) -> None:
        """End every client, after the answer that it waits for."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_REST_S)
        self._client.close()

    def abandon(self) -> None:
        """End every client without waiting for responses.

        A member with a closed client retries until its calls time out, which is too long to wait
        for: its thread ends with the process.
        """
        self._stopping.set()
        self._client.close()
        until = monotonic() + _ABANDON_S
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))

    def _ask(self, group_id: str, api: str, **body: object) -> Response:
        event = RequestEvent(
            request_id=str(uuid.uuid4()),
            group_id=group_id,
            api=api,
            **body,  # type: ignore[arg-type]
        )
        return self._client.ask(event, _ANSWER_MS)

    # --- committers -------------------------------------------------------------------------------

    def _committer(self, number: int) -> None:
        key, offset = Key(f"committer-{number}", TOPIC, 0), 0
        while not self._stopping.wait(_PAUSE_S):
            with self._gate.at_work() as working:
                if not working:
                    continue
                offset += 1
                self.book.ask(key, offset)
                answer = self._ask(
                    key.group_id, "offset_commit", offset_commit=commit_body(key, offset)
                )
                errors = errors_of(answer)
                if errors:
                    self.book.problem(f"{key} at {offset} was answered {sorted(errors)}")
                else:
                    self.book.acknowledge(key, offset)

    # --- members ----------------------------------------------------------------------------------

    def _member(self, group: int, random: Random) -> None:
        group_id = f"members-{group}"
        while not self._stopping.is_set():
            with GroupMember(
                self._root,
                group_id,
                {TOPIC: PARTITIONS},
                client=self._client,
                session_timeout_ms=SESSION_MS,
                enable_auto_commit=False,
                default_api_timeout_ms=_ANSWER_MS,
            ) as member:
                self.book.count("members")
                self._work(member, group_id, monotonic() + random.uniform(*_STAY_S))

    def _work(self, member: GroupMember, group_id: str, until: float) -> None:
        while not self._stopping.is_set() and monotonic() < until:
            try:
                work = member.poll_positions(200)
                with self._gate.at_work() as working:
                    if working and work:
                        self._commit(member, group_id, work)
            except _USUAL as error:
                self.book.count(type(error).__name__)
            sleep(_PAUSE_S)

    def _commit(self, member: GroupMember, group_id: str, work: dict[TopicPartition, int]) -> None:
        offsets = {partition: position + 1 for partition, position in work.items()}
        for partition, offset in offsets.items():
            self.book.ask(Key(group_id, partition.topic, partition.partition), offset)
            member.advance(partition, offset)
        member.commit(offsets)
        for partition, offset in offsets.items():
            self.book.acknowledge(Key(group_id, partition.topic, partition.partition), offset)


@contextmanager
def running_load(root: str, seed: int) -> Iterator[Load]:
    """Run clients for the block. After an error no coordinator may be running to answer them."""
    load = Load(root, seed)
    try:
        yield load
    except BaseException:
        load.abandon()
        raise
    load.stop()


def commit_body(key: Key, offset: int) -> OffsetCommitRequest:
    """Return a commit of one offset without a member."""
    partition = OffsetCommitPartition(key.partition, offset)
    return OffsetCommitRequest(topics=(OffsetCommitTopic(key.topic, (partition,)),))


def errors_of(answer: Response) -> set[int]:
    """Return the error codes of a commit's response, except 0."""
    body = answer.offset_commit
    topics = () if body is None else body.topics
    codes = {each.error_code for topic in topics for each in topic.partitions}
    return (codes | {answer.error_code}) - {0}
